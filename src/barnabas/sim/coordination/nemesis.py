"""The faults of a simulation with coordinators that move: those of replicated partitions, and those that aim
at the node that leads a partition of a coordinators' topic.

A coordinator that is cut off from the other nodes is still reached by clients: it does not know that another
one has taken over. What is beyond the budget of replication is never done (replication/nemesis.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from barnabas.core.random import SeededRandom
from barnabas.sim.chance import between, happens, log_between, pick
from barnabas.sim.cluster.nemesis import both
from barnabas.sim.coordination_scenario import INTERNAL
from barnabas.sim.history import History
from barnabas.sim.machine import Machine
from barnabas.sim.nemesis import Strike
from barnabas.sim.network import SimNetwork
from barnabas.sim.replication.events import PartitionSeen
from barnabas.sim.replication.nemesis import ReplicationNemesis
from barnabas.sim.replication.plan import replicated_facts
from barnabas.sim.scenario import Scenario

CUT_OFF_S = (1.0, 15.0)
PAUSE_S = (0.2, 15.0)
BEHIND_S = (0.2, 3.0)
PREFERRED = 0.6
SUCCESSOR_S = (6.0, 16.0)  # mostly longer than the session of a broker
LOOK_S, SUCCESSOR_LOOKS = 0.02, 600
WITH_CLIENTS = 0.3  # how often a coordinator is cut off from clients, too


class CoordinationNemesis(ReplicationNemesis):
    """Does what the scenario has drawn to the machines of a cluster."""

    def __init__(
        self, scenario: Scenario, machines: Sequence[Machine], network: SimNetwork, history: History
    ) -> None:
        super().__init__(scenario, machines, network, history)
        self._written = replicated_facts(scenario).keys()

    def kinds(self) -> dict[str, Strike]:
        return super().kinds() | {
            "coordinator-crash": self._coordinator_crash,
            "coordinator-cut-off": self._coordinator_cut_off,
            "coordinator-pause": self._coordinator_pause,
            "coordinator-handover": self._coordinator_handover,
            "coordinator-lags": self._coordinator_lags,
        }

    def _some_partition(self, random: SeededRandom) -> PartitionSeen | None:
        """Some partition that coordinators write: one of their own, or one that gets markers."""
        found = [each for each in self.partitions() if each.topic in self._written]
        return pick(random, found) if found else None

    def _coordinator(self, random: SeededRandom) -> Machine | None:
        leaders = [each.leader for each in self.partitions() if each.topic in INTERNAL]
        return self.machine_of(pick(random, leaders)) if leaders else None

    async def _coordinator_crash(self, random: SeededRandom, machine: Machine) -> None:
        self.crash_now(random, self._coordinator(random) or machine, "coordinator-crash")

    async def _coordinator_cut_off(self, random: SeededRandom, machine: Machine) -> None:
        one, seconds = self._coordinator(random) or machine, log_between(random, *CUT_OFF_S)
        others = [each.host for each in self.machines if each is not one]
        if happens(random, WITH_CLIENTS):
            others = list(dict.fromkeys([*others, *self.network.peers_of(one.host)]))
        self.note(one, "coordinator-cut-off", f"from {', '.join(others)} for {seconds:.3f} s")
        await self.hold(both([one.host], others), seconds)

    async def _coordinator_pause(self, random: SeededRandom, machine: Machine) -> None:
        one, seconds = self._coordinator(random) or machine, log_between(random, *PAUSE_S)
        self.note(one, "coordinator-pause", f"for {seconds:.3f} s")
        one.pause()
        await asyncio.sleep(seconds)
        one.resume()

    async def _coordinator_lags(self, random: SeededRandom, machine: Machine) -> None:
        """A follower falls behind a coordinator: what is written meanwhile is not committed."""
        partition = self._some_partition(random)
        if partition is not None:
            await self._fall_behind(random, partition, "coordinator-lags")

    async def _fall_behind(self, random: SeededRandom, partition: PartitionSeen, kind: str) -> None:
        leader = self.machine_of(partition.leader)
        followers = [each for each in partition.replicas if each != leader.node]
        # mostly the one that is elected next where the preferred leader is asked for
        node = followers[0] if happens(random, PREFERRED) else pick(random, followers)
        behind = self.machine_of(node)
        seconds = log_between(random, *BEHIND_S)
        self.note(leader, kind, f"{behind.host} falls behind for {seconds:.3f} s")
        await self.hold(both([leader.host], [behind.host]), seconds)

    async def _coordinator_handover(self, random: SeededRandom, machine: Machine) -> None:
        """What a coordinator writes reaches only some of its followers; it dies, and its successor, which may
        have more than is committed, is cut off from the other nodes."""
        partition = self._some_partition(random)
        if partition is None:
            return
        before = self.machine_of(partition.leader)
        await self._fall_behind(random, partition, "coordinator-handover")
        self.crash_now(random, before, "coordinator-handover")
        successor = await self._successor(partition)
        if successor is not None:
            others = [each.host for each in self.machines if each is not successor]
            await self.hold(both([successor.host], others), between(random, *SUCCESSOR_S))

    async def _successor(self, partition: PartitionSeen) -> Machine | None:
        """The next leader of a partition, if there is one soon."""
        for _ in range(SUCCESSOR_LOOKS):
            await asyncio.sleep(LOOK_S)
            for each in self.partitions():
                is_same = (each.topic, each.partition) == (partition.topic, partition.partition)
                if is_same and each.leader != partition.leader:
                    return self.machine_of(each.leader)
        return None
