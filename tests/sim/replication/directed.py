"""Directed simulations of replicated partitions.

Three brokers, one topic, one partition; no fault but those of the script. The brokers are controllers too, or
a fourth node is the only one (`is_apart`), so that a script may strike two brokers and there is a controller
all the same. The logs of all nodes are looked at every 0.2 s of virtual time, or as often as the script asks
for (`look_closely`). Judged are the checkers of logs and of the metadata. Everything else is as in a seed of
the kind "replication".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any
from unittest import mock

from barnabas.broker.handlers import fetch
from barnabas.broker.replicas.replica import Replica
from barnabas.client.admin import ElectionType, NewTopic
from barnabas.client.producer import ProducerConfig
from barnabas.core.errors import BarnabasError
from barnabas.core.random import SeededRandom
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.cluster.events import Led
from barnabas.sim.history import FaultsEnded, History, TopicFacts, TopicMade
from barnabas.sim.replication.checkers import Equal, Healing, Kept, Leadership, Members, Moves, judged
from barnabas.sim.replication.checkers.healing import WHOLE_S
from barnabas.sim.replication.checkers.steady import Steady
from barnabas.sim.replication.events import PartitionSeen, ReplicaSeen
from barnabas.sim.replication.watch import ReplicationWatch
from barnabas.sim.scenario import REPLICATION, TopicPlan
from barnabas.sim.workload.client import CLIENT
from barnabas.sim.workload.sending import Sender
from tests.sim import directing
from tests.sim.directing import LOOK_S

TOPIC = "t"
BROKERS = (1, 2, 3)
CONTROLLER = 4  # where it is apart
OTHERS = 6  # partitions
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class _Least(SeededRandom):
    """Always draws the least: of what is not synced a power loss leaves nothing."""

    def below(self, bound: int) -> int:
        return 0


class Stage(directing.Stage):
    """What a script may do, and what it sees."""

    # ---- what is seen

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

    def committed(self, *nodes: int) -> set[int]:
        """The high watermarks of these nodes."""
        return {self.log(each).high_watermark for each in nodes}

    async def look_closely(self, sample_s: float) -> None:
        """Look at the logs that often from now on."""
        self.sample_s = sample_s
        await self.client.clock.sleep(Stage.sample_s)

    # ---- the partition and its leader

    async def make_topic(self, replicas: Sequence[int], configs: Mapping[str, str]) -> None:
        topic = NewTopic(TOPIC, 1, len(replicas), dict(configs))
        await self.admin.create_topics([topic])
        min_in_sync = int(configs.get("min.insync.replicas", 1))
        is_compacted = "compact" in configs.get("cleanup.policy", "")
        facts = TopicFacts(replicas=len(replicas), min_in_sync=min_in_sync, is_compacted=is_compacted)
        self.client.history.add(TopicMade(self.client.now, TOPIC, facts))
        await self.move(replicas)

    async def make_others(self) -> None:
        """Another topic, so that every node has something to fetch from every other one at all times."""
        await self.admin.create_topics([NewTopic("other", OTHERS, len(BROKERS), {})])
        await self.wait(1.0)

    async def move(self, replicas: Sequence[int]) -> None:
        """Have exactly these replicas, the first of them the leader."""
        await self._reassign(replicas)
        await self.until(lambda: set(self.partition.isr) == set(replicas))
        await self.prefer()

    async def _reassign(self, replicas: Sequence[int]) -> None:
        with suppress(BarnabasError):
            await self.admin.alter_reassignments({(TOPIC, 0): list(replicas)})
        await self.until(lambda: self.partition.replicas == tuple(replicas) and not self.partition.adding)

    async def prefer(self) -> None:
        """The first replica leads."""
        await self._elect(ElectionType.PREFERRED, lambda: self.partition.leader == self.partition.replicas[0])

    async def prefer_of(self, *replicas: int) -> None:
        """The first of these leads, which have another order from now on."""
        await self._reassign(replicas)
        await self.prefer()

    async def elect_uncleanly(self) -> None:
        """Some replica leads, though none is in sync."""
        await self._elect(ElectionType.UNCLEAN, lambda: self.partition.leader >= 0)

    async def _elect(self, kind: ElectionType, is_done: Callable[[], bool]) -> None:
        while not is_done():
            with suppress(BarnabasError):
                await self.admin.elect_leaders(kind, [(TOPIC, 0)])
            await asyncio.sleep(LOOK_S)

    async def lead_second(self) -> None:
        """The second replica leads, with all in sync: the first one is stopped, and is back."""
        first, second = self.partition.replicas[:2]
        self.machine(first).restart(0.5)
        await self.until(lambda: self.partition.leader == second)
        await self.until(lambda: set(self.partition.isr) == set(self.partition.replicas))

    async def send(
        self, count: int, *, acks: int = -1, pause_s: float = 0.0, keys: str | None = None
    ) -> None:
        """So many batches of one record, each acknowledged, to the leader that is known at first; with a
        letter of `keys` each."""
        config = ProducerConfig(
            acks=acks, idempotence=False, linger_ms=0, delivery_timeout_ms=20_000, client=CLIENT
        )
        sender = Sender(self.client, config)
        async with sender.producer:
            for number in range(count):
                key = None if keys is None else keys[number].encode()
                await sender.send(TOPIC, 0, key, b"value")
                await sender.producer.flush()
                await asyncio.sleep(pause_s)

    # ---- strikes

    async def calm(self) -> None:
        """Whatever was wrong is over, and everything has had its time to heal."""
        self.client.history.add(FaultsEnded(self.client.now))
        await self.client.clock.sleep(WHOLE_S + 1)

    def power_lost(self, node: int, outage_s: float) -> None:
        """A machine loses its power, and everything that was not synced."""
        machine = self.machine(node)
        machine.crash("power", outage_s)
        machine.drive.files.crash_power(_Least(1))

    def hold(self, source: int, target: int) -> None:
        """Deliver nothing from one node to another."""
        self._network.hold(self.machine(source).host, self.machine(target).host)

    def release(self, source: int, target: int) -> None:
        self._network.release(self.machine(source).host, self.machine(target).host)

    @contextmanager
    def when_diverging(self, strike: Callable[[], None]) -> Iterator[asyncio.Event]:
        """Strike when a leader first tells a follower that their histories part, before the answer leaves;
        gives what is set then."""
        struck, honest = asyncio.Event(), fetch._divergence

        def divergence(replica: Replica, ask: Any) -> Any:
            told = honest(replica, ask)
            if told is not None and replica.name == TOPIC and not struck.is_set():
                strike()
                struck.set()
            return told

        with mock.patch.object(fetch, "_divergence", divergence):
            yield struck


Script = Callable[[Stage], Awaitable[None]]


def direct(
    script: Script,
    settings: Mapping[str, str] = NO_SETTINGS,
    *,
    is_apart: bool = False,
    is_compacted: bool = False,
    seed: int = 1,
    on_line: Callable[[str], None] | None = None,
) -> list[Violation]:
    """What the checkers say of a script. The seed decides how long everything takes, and what a power loss
    leaves of what was not synced. `is_compacted`: the topic is made so."""
    voters = (CONTROLLER,) if is_apart else BROKERS
    topic = TopicPlan(TOPIC, 1, {"cleanup.policy": "compact" if is_compacted else "delete"}, 3)
    scenario = directing.scenario_of(REPLICATION, voters, BROKERS, settings, (topic,), seed)
    watch = partial(ReplicationWatch, scenario=scenario)
    return directing.run_script(scenario, Stage, script, watch, _judge, on_line).violations


def _judge(history: History) -> list[Violation]:
    return judged(history, (Equal(), Kept(), Members(), Leadership(), Healing(), Moves(), Steady()))
