"""Directed simulations: a script strikes and asks in a set order, where seeds would hardly ever do so.

Three combined nodes, one topic, one partition; no fault but those of the script. The logs of all nodes are
looked at every 0.2 s of virtual time, or as often as the script asks for (`look_closely`). Judged are the
checkers of logs and of the metadata. Everything else is as in a seed of the kind "replication".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from barnabas.client.admin import Admin, ElectionType, NewTopic
from barnabas.client.producer import ProducerConfig
from barnabas.core.errors import BarnabasError
from barnabas.core.random import SeededRandom
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.cluster.events import Led
from barnabas.sim.cluster.nemesis import both
from barnabas.sim.cluster.plan import ClusterPlan, machine_plan, metadata_settings
from barnabas.sim.history import FaultsEnded, History, TopicFacts, TopicMade
from barnabas.sim.machine import Machine
from barnabas.sim.nemesis import Nemesis
from barnabas.sim.network import SimNetwork
from barnabas.sim.replication.checkers import Equal, Healing, Kept, Leadership, Members, judged
from barnabas.sim.replication.checkers.healing import WHOLE_S
from barnabas.sim.replication.events import PartitionSeen, ReplicaSeen
from barnabas.sim.replication.plan import ReplicationPlan
from barnabas.sim.replication.simulate import SampledWorld
from barnabas.sim.replication.watch import ReplicationWatch
from barnabas.sim.scenario import REPLICATION, Scenario, TopicPlan
from barnabas.sim.workload.client import CLIENT, Client, Seen
from barnabas.sim.workload.sending import Sender
from barnabas.sim.world import simulate_scenario

TOPIC = "t"
NODES = (1, 2, 3)
SAMPLE_S = 0.2
LOOK_S = 0.01
PATIENCE_S = 60.0


class Stage:
    """What a script may do, and what it sees."""

    def __init__(
        self, client: Client, admin: Admin, machines: Sequence[Machine], network: SimNetwork
    ) -> None:
        self.client = client
        self.admin = admin
        self.network = network
        self.sample_s = SAMPLE_S
        self._machines = {machine.node: machine for machine in machines}

    def machine(self, node: int) -> Machine:
        return self._machines[node]

    @property
    def controller(self) -> int:
        """The active controller, as far as anybody knows."""
        return [each.node for each in self.client.history.of(Led)][-1]

    @property
    def partition(self) -> PartitionSeen:
        """The partition in the metadata."""
        return [each for each in self.client.history.of(PartitionSeen) if each.topic == TOPIC][-1]

    def log(self, node: int) -> ReplicaSeen:
        """The log of a node as it was seen last."""
        seen = [each for each in self.client.history.of(ReplicaSeen) if each.node == node]
        return next(each for each in reversed(seen) if each.topic == TOPIC)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait in virtual time."""
        for _ in range(int(PATIENCE_S / LOOK_S)):
            if holds():
                return
            await asyncio.sleep(LOOK_S)
        raise AssertionError(f"this never came: {self.partition}")

    async def make_topic(self, replicas: Sequence[int], configs: Mapping[str, str]) -> None:
        topic = NewTopic(TOPIC, 1, len(replicas), dict(configs))
        await self.admin.create_topics([topic])
        min_in_sync = int(configs.get("min.insync.replicas", 1))
        facts = TopicFacts(replicas=len(replicas), min_in_sync=min_in_sync)
        self.client.history.add(TopicMade(self.client.now, TOPIC, facts))
        await self.move(replicas)

    async def move(self, replicas: Sequence[int]) -> None:
        """Have exactly these replicas, the first of them the leader."""
        with suppress(BarnabasError):
            await self.admin.alter_reassignments({(TOPIC, 0): list(replicas)})
        await self.until(lambda: self.partition.replicas == tuple(replicas) and not self.partition.adding)
        await self.until(lambda: set(self.partition.isr) == set(replicas))
        await self.prefer()

    async def prefer(self) -> None:
        """The first replica leads."""
        while self.partition.leader != self.partition.replicas[0]:
            with suppress(BarnabasError):
                await self.admin.elect_leaders(ElectionType.PREFERRED, [(TOPIC, 0)])
            await asyncio.sleep(LOOK_S)

    async def send(self, count: int, *, acks: int = -1) -> None:
        """So many batches of one record, each acknowledged."""
        config = ProducerConfig(
            acks=acks, idempotence=False, linger_ms=0, delivery_timeout_ms=20_000, client=CLIENT
        )
        sender = Sender(self.client, config)
        async with sender.producer:
            for _ in range(count):
                await sender.send(TOPIC, 0, None, b"value")
                await sender.producer.flush()

    async def look_closely(self, sample_s: float) -> None:
        """Look at the logs that often from now on."""
        self.sample_s = sample_s
        await self.client.clock.sleep(SAMPLE_S)

    async def calm(self) -> None:
        """Whatever was wrong is over, and everything has had its time to heal."""
        self.client.history.add(FaultsEnded(self.client.now))
        await self.client.clock.sleep(WHOLE_S + 1)

    def cut(self, one: int, *others: int) -> None:
        """Deliver nothing between a node and others."""
        for link in self._links(one, others):
            self.network.hold(*link)

    def join(self, one: int, *others: int) -> None:
        for link in self._links(one, others):
            self.network.release(*link)

    def _links(self, one: int, others: Sequence[int]) -> list[tuple[str, str]]:
        return both([self.machine(one).host], [self.machine(each).host for each in others])


Script = Callable[[Stage], Awaitable[None]]


def _scenario() -> Scenario:
    random = SeededRandom(1)
    plan = ClusterPlan(NODES, NODES, is_dynamic=True, admins=0)
    return Scenario(
        1,
        PATIENCE_S,
        metadata_settings(random) | {"auto.leader.rebalance.enable": "false"},
        tuple(machine_plan(random, plan, node)._replace(drift=0.0) for node in NODES),
        (TopicPlan(TOPIC, 1, {"cleanup.policy": "delete"}, 3),),
        (),
        readers=0,
        observers=0,
        client_kill_s=1e9,
        faults={},
        kind=REPLICATION,
        cluster=plan,
        replication=ReplicationPlan(is_within=True, movers=0),
    )


def direct(script: Script) -> list[Violation]:
    """What the checkers say of a script."""
    scenario = _scenario()
    networks: list[SimNetwork] = []

    class Idle(Nemesis):
        async def run(self) -> None:
            networks.append(self.network)

    async def work(world: SampledWorld) -> None:
        process = world.process("script")
        client = Client(world, process, Seen(), asyncio.Event())
        await process.spawn(_play(client, world, networks[0], script))
        await process.kill()

    outcome = simulate_scenario(
        scenario, work, _judge, nemesis=Idle, watch=lambda history: ReplicationWatch(history, scenario)
    )
    return outcome.violations


async def _sample(world: SampledWorld, stage: Stage) -> None:
    while True:
        await asyncio.sleep(stage.sample_s)
        world.sample()


async def _play(client: Client, world: SampledWorld, network: SimNetwork, script: Script) -> None:
    async with Admin(*client.seams, CLIENT) as admin:
        stage = Stage(client, admin, world.machines, network)
        for machine in world.machines:
            while machine.running is None:  # noqa: ASYNC110 - nobody tells, and time is virtual
                await asyncio.sleep(LOOK_S)
        sampling = asyncio.get_running_loop().create_task(_sample(world, stage))
        try:
            await script(stage)
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)


def _judge(history: History) -> list[Violation]:
    return judged(history, (Equal(), Kept(), Members(), Leadership(), Healing()))
