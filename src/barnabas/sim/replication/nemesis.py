"""The faults of a simulation with replicated partitions: those of a cluster, and those that aim at the
replicas of a partition.

Who leads a partition, and who is in sync, is known from what was published. A seed that keeps within the
budget of what replication promises (checkers/budget.py) has a machine's process crash where a loss of its
power would be beyond it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from barnabas.core.random import SeededRandom
from barnabas.sim.chance import between, happens, log_between, pick
from barnabas.sim.checkers.budget import Budget
from barnabas.sim.cluster.nemesis import ClusterNemesis, both
from barnabas.sim.history import History
from barnabas.sim.machine import Kind, Machine
from barnabas.sim.nemesis import Strike
from barnabas.sim.network import SimNetwork
from barnabas.sim.replication.events import PartitionGone, PartitionSeen
from barnabas.sim.replication.plan import replicated_facts
from barnabas.sim.scenario import Scenario

CUT_OFF_S = (1.0, 20.0)
BEHIND_S = (1.0, 20.0)
APART_S = 0.3  # between the crashes of several replicas


class ReplicationNemesis(ClusterNemesis):
    """Does what the scenario has drawn to the machines of a cluster."""

    def __init__(
        self, scenario: Scenario, machines: Sequence[Machine], network: SimNetwork, history: History
    ) -> None:
        super().__init__(scenario, machines, network, history)
        facts = {topic.name: topic.facts for topic in scenario.topics}
        self._budget = Budget(facts | replicated_facts(scenario))
        self._partitions: dict[tuple[str, int], PartitionSeen] = {}
        self._known = 0  # how many events of the history are

    def kinds(self) -> dict[str, Strike]:
        return super().kinds() | {
            "replica-crash": self._replica_crash,
            "replicas-crash": self._replicas_crash,
            "replica-cut-off": self._replica_cut_off,
            "replica-slow": self._replica_slow,
        }

    def allowed(self, machine: Machine, kind: Kind) -> Kind:
        plan = self.scenario.replication
        assert plan is not None
        self._look()
        if kind == "power" and plan.is_within and self._budget.would_exceed(machine.node):
            return "process"
        return kind

    def _look(self) -> None:
        """Take what has happened since."""
        events = self.history.events
        for event in events[self._known :]:
            self._budget.take(event)
            if isinstance(event, PartitionSeen):
                self._partitions[event.topic_id, event.partition] = event
            elif isinstance(event, PartitionGone):
                self._partitions.pop((event.topic_id, event.partition), None)
        self._known = len(events)

    def partitions(self) -> list[PartitionSeen]:
        """Those with several replicas and a leader."""
        self._look()
        return [each for each in self._partitions.values() if each.leader >= 0 and len(each.replicas) > 1]

    def _partition_of(self, random: SeededRandom) -> PartitionSeen | None:
        found = self.partitions()
        return pick(random, found) if found else None

    def machine_of(self, node: int) -> Machine:
        return next(each for each in self.machines if each.node == node)

    async def _replica_crash(self, random: SeededRandom, machine: Machine) -> None:
        """Mostly of a leader."""
        partition = self._partition_of(random)
        if partition is not None:
            machine = self.machine_of(partition.leader)
            if happens(random, 0.3):
                machine = self.machine_of(pick(random, partition.replicas))
        self.crash_now(random, machine, "replica-crash")

    async def _replicas_crash(self, random: SeededRandom, machine: Machine) -> None:
        """All that are in sync, one shortly after another; or all but one."""
        partition = self._partition_of(random)
        if partition is None:
            return
        nodes = list(partition.isr)
        if happens(random, 0.5):
            nodes.pop(random.below(len(nodes)))
        if happens(random, 0.5):
            nodes.reverse()
        for node in nodes:
            self.crash_now(random, self.machine_of(node), "replicas-crash")
            await asyncio.sleep(between(random, 0.0, APART_S))

    async def _replica_cut_off(self, random: SeededRandom, machine: Machine) -> None:
        """The leader from its followers, or one follower from all other replicas; not from controllers
        apart."""
        partition, seconds = self._partition_of(random), log_between(random, *CUT_OFF_S)
        if partition is None:
            return
        node = partition.leader if happens(random, 0.5) else pick(random, partition.replicas)
        one = self.machine_of(node)
        others = [self.machine_of(each).host for each in partition.replicas if each != node]
        self.note(one, "replica-cut-off", f"from {', '.join(others)} for {seconds:.3f} s")
        await self.hold(both([one.host], others), seconds)

    async def _replica_slow(self, random: SeededRandom, machine: Machine) -> None:
        """A follower's disk is so slow that it falls behind."""
        partition, seconds = self._partition_of(random), log_between(random, *BEHIND_S)
        if partition is None:
            return
        followers = [each for each in partition.isr if each != partition.leader] or [partition.leader]
        one = self.machine_of(pick(random, followers))
        self.note(one, "replica-slow", f"for {seconds:.3f} s")
        one.drive.slow = 0.5
        await asyncio.sleep(seconds)
        one.drive.slow = 0.0
