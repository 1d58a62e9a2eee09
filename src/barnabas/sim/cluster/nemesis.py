"""The faults of a simulated cluster: those of every simulation, and those that take several nodes."""

from __future__ import annotations

from barnabas.sim.nemesis import Nemesis


class ClusterNemesis(Nemesis):
    """Does what the scenario has drawn to the machines of a cluster."""
