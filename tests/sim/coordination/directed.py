"""Directed simulations of coordinators that move: a script commits, moves and strikes in a set order, where
seeds would seldom do so.

A controller and three brokers; topics of one partition; no fault but those of the script. Judged are the
checkers of groups and transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from barnabas.client.admin import Admin, ElectionType, NewTopic
from barnabas.client.offsets import LATEST
from barnabas.core.errors import BarnabasError
from barnabas.core.random import SeededRandom
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.sim.checkers import commits, fencing, settling
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.cluster.nemesis import both
from barnabas.sim.cluster.plan import ClusterPlan, machine_plan, metadata_settings
from barnabas.sim.coordination.watch import CoordinationWatch
from barnabas.sim.coordination_scenario import NEW, GroupPlan, LoopPlan
from barnabas.sim.group_events import CommitDone
from barnabas.sim.history import History
from barnabas.sim.machine import Machine
from barnabas.sim.nemesis import Nemesis
from barnabas.sim.network import SimNetwork
from barnabas.sim.replication.events import PartitionSeen, ReplicaSeen
from barnabas.sim.replication.plan import ReplicationPlan
from barnabas.sim.replication.simulate import SampledWorld
from barnabas.sim.scenario import REPLICATED_TRANSACTIONS, Scenario
from barnabas.sim.transaction_events import Drained, StableFinal
from barnabas.sim.workload.client import CLIENT, Client, Seen
from barnabas.sim.workload.committing import Committer
from barnabas.sim.workload.coordinators import Asking
from barnabas.sim.workload.transacting import TransactionalProducer
from barnabas.sim.world import simulate_scenario

CONTROLLER, BROKERS = 1, (2, 3, 4)
GROUP, INPUT, OUTPUT = "g", "input", ("output", 0)
GROUPS, TRANSACTIONS = (CONSUMER_OFFSETS, 0), (TRANSACTION_STATE, 0)
SAMPLE_S, LOOK_S, PATIENCE_S = 0.05, 0.01, 60.0
COMMITTER = "waited for"
DRAIN_S = 15.0
TIMEOUT_MS = 3_000  # of transactions

Place = tuple[str, int]


class Stage:
    """What a script may do, and what it sees."""

    def __init__(
        self, client: Client, admin: Admin, asking: Asking, world: SampledWorld, network: SimNetwork
    ):
        self.client = client
        self.admin = admin
        # what is not waited for has connections of its own
        self.asking, aside = asking
        self.committer = Committer(client, self.asking, GROUP, COMMITTER)
        self.aside = Committer(client, aside, GROUP, "aside")
        self._network = network
        self._machines = {machine.node: machine for machine in world.machines}
        self._under_way: list[asyncio.Task[None]] = []
        self._lives = 0

    def machine(self, node: int) -> Machine:
        return self._machines[node]

    def partition(self, place: Place) -> PartitionSeen:
        """A partition in the metadata."""
        seen = [
            each for each in self.client.history.of(PartitionSeen) if (each.topic, each.partition) == place
        ]
        return seen[-1]

    def end(self, place: Place, node: int) -> int:
        """Where the log of a node ends, as it was seen last."""
        seen = [
            each
            for each in self.client.history.of(ReplicaSeen)
            if (each.topic, each.partition, each.node) == (*place, node)
        ]
        return seen[-1].end_offset if seen else 0

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait in virtual time."""
        for _ in range(int(PATIENCE_S / LOOK_S)):
            if holds():
                return
            await asyncio.sleep(LOOK_S)
        raise AssertionError("this never came")

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def again(self, step: Callable[[], Awaitable[object]]) -> None:
        """Do something until it goes well."""
        for _ in range(200):
            with suppress(BarnabasError):
                await step()
                return
            await asyncio.sleep(0.1)
        raise AssertionError("this never went well")

    # ---- partitions

    async def make(self) -> None:
        """The topics, with their leaders and replicas in the order of the brokers."""
        configs = {"min.insync.replicas": "2"}
        for topic in (NewTopic(INPUT, 2, 3, configs), NewTopic(OUTPUT[0], 1, 3, configs)):
            await self.again(partial(self.admin.create_topics, [topic]))
        await self.commit(0)
        await self.again(lambda: self.producer().begin_life())
        for place in (GROUPS, TRANSACTIONS, OUTPUT):
            await self.lead(place, *BROKERS)

    async def lead(self, place: Place, *replicas: int) -> None:
        """Have these replicas in that order, the first of them the leader."""
        while self.partition(place).replicas != replicas:
            with suppress(BarnabasError):
                await self.admin.alter_reassignments({place: list(replicas)})
            await asyncio.sleep(LOOK_S)
        while self.partition(place).leader != replicas[0]:
            with suppress(BarnabasError):
                await self.admin.elect_leaders(ElectionType.PREFERRED, [place])
            await asyncio.sleep(LOOK_S)

    def cut(self, one: int, other: int) -> None:
        for link in both([self.machine(one).host], [self.machine(other).host]):
            self._network.hold(*link)

    def join(self, one: int, other: int) -> None:
        for link in both([self.machine(one).host], [self.machine(other).host]):
            self._network.release(*link)

    # ---- offsets and transactions

    async def commit(self, partition: int) -> None:
        """The next offset of a partition of the input, until it is acknowledged."""
        self.committer.place = (INPUT, partition)
        done = 0
        while not done:
            before = self._done
            with suppress(BarnabasError):
                await self.committer.commit()
            done = self._done - before
            await asyncio.sleep(LOOK_S)

    @property
    def _done(self) -> int:
        return sum(each.mark.startswith(COMMITTER) for each in self.client.history.of(CommitDone))

    def commit_aside(self, partition: int) -> None:
        """Begin a commit, and do not wait for it."""
        self.aside.place = (INPUT, partition)
        self.begin(self.aside.commit)

    def begin(self, step: Callable[[], Awaitable[object]]) -> None:
        """Begin something, and do not wait for it."""

        async def go() -> None:
            with suppress(BarnabasError):
                await step()

        self._under_way.append(asyncio.get_running_loop().create_task(go()))

    async def look(self, *, is_stable: bool = True) -> None:
        """What is committed for the first partition of the input."""
        await self.again(lambda: self.asking.committed(GROUP, [(INPUT, 0)], is_stable=is_stable))

    async def drained(self, offset: int) -> None:
        """Whether the input is worked off up to there, as those see it who wait for what is stable."""
        found = -1
        until = self.client.now + DRAIN_S
        while found < offset and self.client.now < until:
            with suppress(BarnabasError):
                found, _ = (await self.asking.committed(GROUP, [(INPUT, 0)], is_stable=True))[INPUT, 0]
            await asyncio.sleep(LOOK_S)
        self.client.history.add(Drained(self.client.now, GROUP, INPUT, 0, offset, found >= offset))

    def producer(self, name: str = "p") -> TransactionalProducer:
        self._lives += 1
        group = GroupPlan(GROUP, INPUT, 0, 0, 6_000, 6_000)
        plan = LoopPlan(name, group, 0, OUTPUT[0], NEW, TIMEOUT_MS, 0.0, False)
        return TransactionalProducer(self.client, self.asking, plan, self._lives)

    async def begun(self, name: str = "p") -> TransactionalProducer:
        """A producer with one record in a transaction."""
        producer = self.producer(name)
        await self.again(producer.begin_life)
        producer.begin()
        await producer.write(OUTPUT, [""])
        return producer

    async def stable(self) -> None:
        """Where what is committed of the output ends, in the end."""
        ends: list[int] = []

        async def ask() -> None:
            for is_committed in (True, False):
                found = await self.admin.list_offsets({OUTPUT: LATEST}, read_committed=is_committed)
                ends.append(next(iter(found.values())).offset)

        await self.again(ask)
        self.client.history.add(StableFinal(self.client.now, *OUTPUT, *ends[-2:]))

    async def close(self) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)


Script = Callable[[Stage], Awaitable[None]]


def _scenario() -> Scenario:
    random = SeededRandom(1)
    plan = ClusterPlan((CONTROLLER,), BROKERS, is_dynamic=True, admins=0)
    settings = {
        "auto.leader.rebalance.enable": "false",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "min.insync.replicas": "2",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    return Scenario(
        1,
        PATIENCE_S,
        metadata_settings(random) | settings,
        tuple(machine_plan(random, plan, node)._replace(drift=0.0) for node in (CONTROLLER, *BROKERS)),
        (),
        (),
        readers=0,
        observers=0,
        client_kill_s=1e9,
        faults={},
        kind=REPLICATED_TRANSACTIONS,
        cluster=plan,
        replication=ReplicationPlan(is_within=True, movers=0),
    )


def direct(script: Script) -> list[Violation]:
    """What the checkers say of a script, or that the simulation itself broke."""
    scenario = _scenario()
    networks: list[SimNetwork] = []

    class Idle(Nemesis):
        async def run(self) -> None:
            networks.append(self.network)

    async def work(world: SampledWorld) -> None:
        process = world.process("script")
        client = Client(world, process, Seen(), asyncio.Event())
        await process.spawn(_play(client, world, networks, script))
        await process.kill()

    outcome = simulate_scenario(
        scenario, work, _judge, nemesis=Idle, watch=lambda history: CoordinationWatch(history, scenario)
    )
    return outcome.violations


async def _play(client: Client, world: SampledWorld, networks: Sequence[SimNetwork], script: Script) -> None:
    async with Admin(*client.seams, CLIENT) as admin, Asking(client) as one, Asking(client) as other:
        stage = Stage(client, admin, (one, other), world, networks[0])
        await stage.until(lambda: all(machine.running is not None for machine in world.machines))
        sampling = asyncio.get_running_loop().create_task(_sample(world))
        try:
            await stage.make()
            await script(stage)
        finally:
            await stage.close()
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)


async def _sample(world: SampledWorld) -> None:
    while True:
        await asyncio.sleep(SAMPLE_S)
        world.sample()


def _judge(history: History) -> list[Violation]:
    return commits.check(history) + fencing.check(history) + settling.check(history)
