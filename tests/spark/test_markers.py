"""What the log of the marker topic says of an application: control records decide."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.admin import Admin
from barnabas.core.random import SeededRandom
from barnabas.log.partition import PartitionLog
from barnabas.records.builder import build_batch
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.record import Record
from barnabas.sim.loop import LoopClock, run
from barnabas.spark import markers
from barnabas.spark.driving import seams
from barnabas.spark.markers import (
    Decision,
    Entry,
    MarkerLog,
    Markers,
    TaskMarker,
    decision_key,
    decision_value,
    ensure_topic,
    marker_value,
    task_of,
    transactional_id,
)
from barnabas.testing import Broker
from tests.client.fake_broker import FakeCluster
from tests.support.raw_client import wait_until

DECISION = Decision(3, 2, (Entry(0, 70, 0, 2, 10, 100), Entry(1, 71, 0, 2, 11, 110)))


class Log:
    """Bytes as a fetch brings them."""

    def __init__(self) -> None:
        self.data, self.offset = bytearray(), 0

    def mark(self, app: str, task: int, batch: int, producer: int) -> Log:
        key = transactional_id(app, task).encode()
        record = Record(0, 0, key, marker_value(TaskMarker(batch, 10 * batch, 100)))
        made = build_batch(
            [record],
            base_offset=self.offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        return self._add(made)

    def end(self, producer: int, kind: ControlType = ControlType.COMMIT) -> Log:
        made = build_end_transaction(
            kind,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
            base_offset=self.offset,
        )
        return self._add(made)

    def decide(self, app: str, value: bytes | None, *, transactional: bool = False) -> Log:
        record = Record(0, 0, decision_key(app), value)
        made = build_batch([record], base_offset=self.offset, producer_id=1, transactional=transactional)
        return self._add(made)

    def _add(self, batch: bytearray) -> Log:
        self.data += batch
        self.offset += 1
        return self


def found(log: Log, app: str = "a", first_offset: int = 0) -> Markers:
    markers = Markers(app)
    markers.take(log.data, first_offset)
    return markers


def test_what_is_committed_counts() -> None:
    log = Log().mark("a", 0, 1, 70).mark("a", 1, 1, 71).end(71).end(70, ControlType.ABORT)
    markers = found(log.mark("a", 2, 1, 72))  # which is open
    assert markers.committed == {1: TaskMarker(1, 10, 100)}
    assert markers.newest_batch == 1
    assert markers.has_committed(1, 1)
    assert markers.has_committed(1, 0)
    assert not markers.has_committed(1, 2)
    assert not markers.has_committed(0, 1)
    markers.take(Log().end(72).data, 0)
    assert markers.has_committed(2, 1)


def test_the_last_that_was_committed_counts() -> None:
    log = Log().mark("a", 0, 1, 70).end(70).mark("a", 0, 2, 70).end(70)
    assert found(log.mark("a", 0, 3, 70).end(70, ControlType.ABORT)).committed[0].batch == 2


def test_nothing_of_others() -> None:
    log = Log().mark("a-1", 0, 5, 70).end(70).mark("b", 0, 6, 70).end(70)
    log.decide("a-1", decision_value(DECISION)).decide("b", decision_value(DECISION))
    markers = found(log, "a")
    assert (markers.committed, markers.decision, markers.newest_batch) == ({}, None, -1)
    assert found(log, "a-1").newest_batch == 5


def prepared() -> Log:
    """Both transactions of the decision, open."""
    return Log().mark("a", 0, 3, 70).mark("a", 1, 3, 71)


def test_a_decision() -> None:
    log = prepared().decide("a", decision_value(DECISION))
    markers = found(log)
    assert markers.decided(3) == DECISION
    assert markers.decided(2) is None
    assert markers.newest_batch == 3
    later = DECISION._replace(batch=4)
    markers.take(Log().end(70).end(71).mark("a", 0, 4, 70).mark("a", 1, 4, 71).data, 0)
    markers.take(Log().decide("a", decision_value(later)).decide("a", decision_value(DECISION)).data, 0)
    assert markers.decided(3) is None
    assert markers.decided(4) == later
    assert found(prepared().decide("a", decision_value(DECISION)).decide("a", None)).decision is None
    # in a transaction it would not be known whether it holds
    assert found(prepared().decide("a", decision_value(DECISION), transactional=True)).decision is None


def test_a_decision_binds_while_all_is_open_or_once_some_is_committed() -> None:
    markers = found(prepared().end(70, ControlType.ABORT).decide("a", decision_value(DECISION)))
    assert (markers.decision, markers.newest_batch) == (None, -1)  # it came too late
    markers.take(Log().end(71).data, 0)
    assert markers.decided(3) == DECISION
    assert markers.undone(DECISION) == [DECISION.entries[0]]


def test_a_decision_that_came_late_does_not_undo_another() -> None:
    slept = Decision(3, 3, tuple(entry._replace(producer_id=entry.producer_id + 10) for entry in DECISION[2]))
    log = prepared().decide("a", decision_value(DECISION)).end(70).decide("a", decision_value(slept))
    markers = found(log)
    assert markers.decided(3) == DECISION
    assert markers.undone(markers.decision) == [DECISION.entries[1]]


def test_what_is_decided_and_not_done() -> None:
    markers = found(prepared().decide("a", decision_value(DECISION)))
    assert markers.undone(markers.decision) == list(DECISION.entries)
    markers.take(Log().end(71).end(70, ControlType.ABORT).mark("a", 0, 4, 70).end(70).data, 0)
    assert markers.undone(markers.decision) == []  # 0 has left it behind
    assert markers.undone(None) == []


def test_what_was_read_before_and_what_is_cut_short() -> None:
    log = Log().decide("a", decision_value(DECISION)).mark("a", 0, 4, 70).end(70)
    assert found(log, first_offset=1).decision is None
    log.data = log.data[:-1]
    assert found(log).committed == {}


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("spark-a-0", 0),
        ("spark-a-17", 17),
        ("spark-a-decision", None),
        ("spark-a-1-2", None),
        ("spark-a-", None),
        ("spark-a-²", None),
        ("other-a-0", None),
    ],
)
def test_whose_transactional_id_it_is(name: str, task: int | None) -> None:
    assert task_of("a", name) == task


def test_entries_are_what_an_admin_ends() -> None:
    assert DECISION.entries[1].prepared("a") == ("spark-a-1", 71, 0, False, 2)


def test_markers_outlive_compaction(shared_broker: Broker) -> None:
    """Of many markers and their control records, what is left says the same."""
    from barnabas.client.producer import Producer, ProducerConfig

    topic = "markers-compacted"

    async def write() -> None:
        async with Admin(*seams(), shared_broker.bootstrap) as admin:
            await ensure_topic(admin, topic)
            await ensure_topic(admin, topic)
        for task in range(2):
            name = transactional_id("a", task)
            config = ProducerConfig(transactional_id=name)
            async with Producer(*seams(), shared_broker.bootstrap, config) as producer:
                await producer.init_transactions()
                for batch in range(5):
                    async with producer.transaction():
                        await producer.send(topic, marker_value(TaskMarker(batch, 1, 1)), name.encode(), 0)
                producer.begin_transaction()
                await producer.send(topic, marker_value(TaskMarker(5, 1, 1)), name.encode(), 0)
                await producer.flush()
                await producer.abort_transaction()

    async def roll() -> PartitionLog:
        replicas = shared_broker.node.broker.replicas
        log = (await replicas.leader(replicas.topic(topic, b"", by_id=False), 0)).log
        await log.roll()
        return log

    async def read() -> Markers:
        async with (
            Admin(*seams(), shared_broker.bootstrap) as admin,
            MarkerLog(admin, shared_broker.bootstrap, topic, "a") as log,
        ):
            return await log.read()

    asyncio.run(write())
    before = asyncio.run(read())
    assert {task: marker.batch for task, marker in before.committed.items()} == {0: 4, 1: 4}
    log = shared_broker.run(roll())
    wait_until(lambda: log.cleaned_offset == 24, "it is compacted")
    assert asyncio.run(read()).committed == before.committed


def test_a_log_whose_tail_is_compacted_away_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    monkeypatch.setattr(
        markers, "seams", lambda: (cluster.network.host("reader"), LoopClock(), SeededRandom(1))
    )

    async def main() -> None:
        cluster.add_topic("m", 1)
        partition = cluster.partition("m")
        for batch in (Log().mark("a", 0, 4, 70), Log().end(70)):
            partition.append(bytes(batch.data))
        partition.emptied_to = 9
        await cluster.start()
        async with (
            Admin(cluster.network.host("admin"), LoopClock(), SeededRandom(2), cluster.bootstrap) as admin,
            MarkerLog(admin, cluster.bootstrap, "m", "a") as log,
        ):
            for _ in range(2):
                found = await asyncio.wait_for(log.read(), 100)
                assert found.committed == {0: TaskMarker(4, 40, 100)}

    run(main())
