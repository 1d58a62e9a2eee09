"""Directed simulations of coordinators that move: a script commits, moves and strikes in a set order, where
seeds would seldom do so.

A controller and three brokers; topics of one partition; no fault but those of the script. Judged are the
checkers of groups and transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from barnabas.client.admin import Admin, ElectionType, NewTopic
from barnabas.client.offsets import LATEST
from barnabas.core.errors import BarnabasError
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.sim.checkers import commits, fencing, isolation, ownership, settling, stable
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.coordination.watch import CoordinationWatch
from barnabas.sim.coordination_scenario import NEW, GroupPlan, LoopPlan
from barnabas.sim.group_events import CommitDone, GroupSeen, GroupWanted
from barnabas.sim.history import History
from barnabas.sim.network import SimNetwork
from barnabas.sim.replication.events import PartitionSeen, ReplicaSeen
from barnabas.sim.replication.simulate import SampledWorld
from barnabas.sim.scenario import REPLICATED_TRANSACTIONS
from barnabas.sim.transaction_events import Drained, StableFinal, StableSeen
from barnabas.sim.workload.client import Client, Seen
from barnabas.sim.workload.committing import Committer
from barnabas.sim.workload.coordinators import Asking
from barnabas.sim.workload.membership import Member
from barnabas.sim.workload.transacting import TransactionalProducer
from barnabas.sim.workload.watching import read_outputs
from tests.sim import directing
from tests.sim.directing import LOOK_S

CONTROLLER, BROKERS = 1, (2, 3, 4)
GROUP, INPUT = "g", "input"
INPUTS = ((INPUT, 0), (INPUT, 1))
OUTPUT, OTHER_OUTPUT = ("output", 0), ("output", 1)
GROUPS, TRANSACTIONS = (CONSUMER_OFFSETS, 0), (TRANSACTION_STATE, 0)
COMMITTER = "waited for"
DRAIN_S, DRAIN_LOOK_S = 15.0, 0.1
TIMEOUT_MS = 3_000  # of transactions
# a group of two members
MEMBERS = GroupPlan("m", INPUT, 2, 0, session_ms=6_000, rebalance_ms=6_000)
BEAT_S = 0.3
SETTLE_S = 15.0
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}
JUDGES = (commits, ownership, isolation, fencing, stable, settling)

Place = tuple[str, int]


class Stage(directing.Stage):
    """What a script may do, and what it sees."""

    sample_s = 0.05

    def __init__(self, client: Client, admin: Admin, world: SampledWorld, network: SimNetwork) -> None:
        super().__init__(client, admin, world, network)
        # what is not waited for has connections of its own
        self.asking, aside = Asking(client), Asking(client)
        self._asking = [self.asking, aside]
        self.committer = Committer(client, self.asking, GROUP, COMMITTER)
        self.aside = Committer(client, aside, GROUP, "aside")
        self._under_way: list[asyncio.Task[None]] = []
        self._lives = 0

    async def open(self) -> None:
        await self._make()

    async def close(self) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        for asking in self._asking:
            await asking.cluster.close()

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

    async def again(self, step: Callable[[], Awaitable[object]]) -> None:
        """Do something until it goes well."""
        for _ in range(200):
            with suppress(BarnabasError):
                await step()
                return
            await asyncio.sleep(0.1)
        raise AssertionError("this never went well")

    # ---- partitions

    async def _make(self) -> None:
        """The topics, with their leaders and replicas in the order of the brokers."""
        configs = {"min.insync.replicas": "2"}
        for topic in (NewTopic(INPUT, 2, 3, configs), NewTopic(OUTPUT[0], 2, 3, configs)):
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

    def begin(self, step: Callable[[], Awaitable[object]]) -> asyncio.Task[None]:
        """Begin something, and do not wait for it."""

        async def go() -> None:
            with suppress(BarnabasError):
                await step()

        task = asyncio.get_running_loop().create_task(go())
        self._under_way.append(task)
        return task

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
            await asyncio.sleep(DRAIN_LOOK_S)
        self.client.history.add(Drained(self.client.now, GROUP, INPUT, 0, offset, found >= offset))

    def producer(self, name: str = "p", timeout_ms: int = TIMEOUT_MS) -> TransactionalProducer:
        self._lives += 1
        group = GroupPlan(GROUP, INPUT, 0, 0, 6_000, 6_000)
        plan = LoopPlan(name, group, 0, OUTPUT[0], NEW, timeout_ms, 0.0, False)
        return TransactionalProducer(self.client, self.asking, plan, self._lives)

    async def begun(self, name: str = "p", timeout_ms: int = TIMEOUT_MS) -> TransactionalProducer:
        """A producer with one record in a transaction."""
        producer = self.producer(name, timeout_ms)
        await self.again(producer.begin_life)
        producer.begin()
        await producer.write(OUTPUT, [""])
        return producer

    async def stable(self) -> None:
        """Where what is committed of the output ends, in the end."""
        stable_offset = await self._end_of_output(is_committed=True)
        end = await self._end_of_output(is_committed=False)
        self.client.history.add(StableFinal(self.client.now, *OUTPUT, stable_offset, end))

    async def look_stable(self) -> None:
        """Where what is committed of the output ends now."""
        asked_at = self.client.now
        offset = await self._end_of_output(is_committed=True)
        self.client.history.add(StableSeen(self.client.now, asked_at, self.client.name, *OUTPUT, offset))

    async def _end_of_output(self, *, is_committed: bool) -> int:
        found: list[int] = []

        async def ask() -> None:
            answer = await self.admin.list_offsets({OUTPUT: LATEST}, read_committed=is_committed)
            found.extend(one.offset for one in answer.values())

        await self.again(ask)
        return found[-1]

    async def read_outputs(self) -> None:
        """All of the output, at last."""
        await read_outputs(self.client, (OUTPUT, OTHER_OUTPUT))

    # ---- members

    def member(self, name: str) -> Member:
        """A member of MEMBERS, which is a client of its own."""
        client = Client(self._world, self.client.process, Seen(), asyncio.Event())
        client.name = name
        asking = Asking(client)
        self._asking.append(asking)
        return Member(client, asking, MEMBERS, "", INPUTS)

    def keep(self, member: Member) -> asyncio.Task[None]:
        """Have it stay a member: it sends heartbeats, and joins where it must, until cancelled."""
        return self.begin(partial(self._stay, member))

    async def _stay(self, member: Member) -> None:
        while True:
            with suppress(BarnabasError):
                await (member.join() if member.must_join or member.has_run_out() else member.heartbeat())
            await asyncio.sleep(BEAT_S)

    async def owned_by(self, *members: Member) -> None:
        """Wait until these have all partitions, in one generation; with a bug that may never come."""
        until = self.client.now + SETTLE_S
        while self.client.now < until:
            owned = [place for member in members for place in member.places or ()]
            if sorted(owned) == list(INPUTS) and len({member.generation for member in members}) == 1:
                return
            await asyncio.sleep(LOOK_S)

    async def settled(self, **members: Member) -> None:
        """What these members have when all others have had their time to go."""
        self.client.history.add(GroupWanted(self.client.now, MEMBERS.name, len(members), INPUTS))
        await self.wait(SETTLE_S)
        for name, member in members.items():
            generation, places = (member.generation, member.places or ()) if member.places else (-1, ())
            seen = GroupSeen(self.client.now, MEMBERS.name, name, generation, places)
            self.client.history.add(seen)


Script = Callable[[Stage], Awaitable[None]]


def direct(script: Script, on_line: Callable[[str], None] | None = None) -> list[Violation]:
    """What the checkers say of a script, or that the simulation itself broke."""
    scenario = directing.scenario_of(REPLICATED_TRANSACTIONS, (CONTROLLER,), BROKERS, SETTINGS)
    watch = partial(CoordinationWatch, scenario=scenario)
    return directing.run_script(scenario, Stage, script, watch, _judge, on_line).violations


def _judge(history: History) -> list[Violation]:
    return [violation for module in JUDGES for violation in module.check(history)]
