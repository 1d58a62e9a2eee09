"""Runs a seed of the kind "cluster"."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.sim.cluster.checkers import check_cluster
from barnabas.sim.cluster.nemesis import ClusterNemesis
from barnabas.sim.cluster.plan import draw_cluster
from barnabas.sim.cluster.watch import ClusterWatch
from barnabas.sim.cluster.workload import run_cluster
from barnabas.sim.world import Outcome, simulate_scenario


def simulate_cluster(
    seed: int, *, seconds: float | None = None, on_line: Callable[[str], None] | None = None
) -> Outcome:
    scenario = draw_cluster(seed, seconds)
    return simulate_scenario(
        scenario, run_cluster, check_cluster, on_line=on_line, nemesis=ClusterNemesis, watch=ClusterWatch
    )
