"""Ranges of offsets as Arrow: the records that a consumer would see, column by column."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import confluent_kafka
import pytest

from barnabas.client import arrow
from barnabas.client.arrow import CREATE_TIME, LOG_APPEND_TIME, read_range, record_batches
from barnabas.client.consumer import Consumer, ConsumerConfig, Reset
from barnabas.client.errors import OffsetOutOfRange, TimedOut
from barnabas.client.fetched import Fetched
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer import ProducerConfig
from barnabas.core.random import SeededRandom
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from barnabas.protocol.schema import Message
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.record import Record
from barnabas.sim.loop import LoopClock, run
from tests.client.fake_broker import FakeBroker, FakeCluster, Rule
from tests.client.real import Clients, real
from tests.support.batches import simple_records

EXACT = ConsumerConfig(reset=Reset.NONE)
PLACE = TopicPartition("t", 3)


async def read_into(found: list[Any], consumer: Consumer, topic: str, start: int, end: int) -> None:
    async for batch in read_range(consumer, (topic, 0), start, end, timeout_ms=300):
        found.append(batch)


def rows_of(batches: Iterable[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def fetched(*batches: bytes | bytearray, position: int = 0) -> Any:
    return Fetched(PLACE, b"".join(batches), position).rest()


def test_every_field_is_there() -> None:
    records = [
        Record(0, 1_700_000_000_123, b"key", b"value", (("a", b"1"), ("a", None))),
        Record(1, -1, None, None, ()),
        Record(2, 5, b"", b"", (("", b""),)),
    ]
    (batch,) = record_batches(fetched(build_batch(records, base_offset=40)))
    assert batch.column("timestamp").cast("int64").to_pylist() == [1_700_000_000_123, -1, 5]
    rows = [{name: row[name] for name in row if name != "timestamp"} for row in batch.to_pylist()]
    same = {"topic": "t", "partition": 3, "timestamp_type": CREATE_TIME}
    assert rows == [
        {
            "key": b"key",
            "value": b"value",
            "offset": 40,
            "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
            **same,
        },
        {"key": None, "value": None, "offset": 41, "headers": [], **same},
        {"key": b"", "value": b"", "offset": 42, "headers": [{"key": "", "value": b""}], **same},
    ]


def test_a_record_batch_ends_where_the_kind_of_timestamps_changes() -> None:
    kinds = [None, 7, 7, None]
    data = [
        build_batch(simple_records(3), base_offset=10 * n, append_time_ms=kind, codec=Codec.GZIP if n else 0)
        for n, kind in enumerate(kinds)
    ]
    found = list(record_batches(fetched(*data)))
    assert [batch.column("offset").to_pylist() for batch in found] == [
        [0, 1, 2],
        [10, 11, 12, 20, 21, 22],
        [30, 31, 32],
    ]
    types = [CREATE_TIME, LOG_APPEND_TIME, CREATE_TIME]
    assert [set(batch.column("timestamp_type").to_pylist()) for batch in found] == [{each} for each in types]
    assert set(found[1].column("timestamp").cast("int64").to_pylist()) == {7}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_what_lies_outside_the_range_is_left_out(codec: Codec) -> None:
    data = [build_batch(simple_records(5), base_offset=base, codec=codec) for base in (0, 5, 10)]
    rows = rows_of(record_batches(fetched(*data, position=3), end_offset=7))
    assert [row["offset"] for row in rows] == [3, 4, 5, 6]
    assert rows_of(record_batches(fetched(*data), end_offset=0)) == []


def test_control_batches_are_passed_over() -> None:
    marker = build_end_transaction(
        ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=3
    )
    data = [build_batch(simple_records(3)), marker, build_batch(simple_records(2), base_offset=4)]
    assert [row["offset"] for row in rows_of(record_batches(fetched(*data)))] == [0, 1, 2, 4, 5]


def test_what_is_held_at_a_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    big = [Record(0, 0, None, bytes(1000), ())]
    data = [build_batch(big, base_offset=base, codec=Codec.ZSTD) for base in range(10)]
    monkeypatch.setattr(arrow, "HELD_BYTES", 3500)
    sizes = [batch.num_rows for batch in record_batches(fetched(*data))]
    assert sizes == [3, 3, 3, 1]


def test_many_rows_are_handed_over_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    data = [build_batch(simple_records(10), base_offset=10 * number) for number in range(3)]
    whole = rows_of(record_batches(fetched(*data)))
    monkeypatch.setattr(arrow, "MAX_ROWS", 16)
    parts = list(record_batches(fetched(*data)))
    assert [part.num_rows for part in parts] == [16, 14]
    assert rows_of(parts) == whole


@pytest.mark.parametrize("codec", list(Codec))
def test_a_range_of_a_topic(bootstrap: str, codec: Codec) -> None:
    async def work(clients: Clients) -> None:
        topic = await clients.topic(f"arrow-{codec.name}")
        async with clients.producer(ProducerConfig(compression=codec, batch_bytes=700)) as producer:
            for n in range(1000):
                await producer.send(topic, b"%d" % n if n % 5 else None, headers=(("n", b"%d" % n),))
        async with clients.consumer(EXACT._replace(partition_max_bytes=4000)) as consumer:
            rows = rows_of([each async for each in read_range(consumer, (topic, 0), 123, 877)])
        assert [row["offset"] for row in rows] == list(range(123, 877))
        assert [row["value"] for row in rows] == [b"%d" % n if n % 5 else None for n in range(123, 877)]
        assert all(row["headers"] == [{"key": "n", "value": b"%d" % row["offset"]}] for row in rows)

    real(bootstrap, work)


def test_a_range_that_is_not_there(bootstrap: str) -> None:
    async def work(clients: Clients) -> None:
        topic = await clients.topic("arrow-short")
        async with clients.producer() as producer:
            for n in range(10):
                await producer.send(topic, b"%d" % n)
        found: list[Any] = []
        async with clients.consumer(EXACT) as consumer:
            with pytest.raises(TimedOut, match=r"at offset 10, and the range ends at 11"):
                await read_into(found, consumer, topic, 8, 11)
            assert [row["offset"] for row in rows_of(found)] == [8, 9]
            with pytest.raises(OffsetOutOfRange):
                await read_into(found, consumer, topic, 12, 13)
            await read_into(found, consumer, topic, 5, 5)
            assert len(rows_of(found)) == 2

    real(bootstrap, work)


def test_a_reset_brings_nothing_that_was_not_asked_for(bootstrap: str) -> None:
    async def work(clients: Clients) -> None:
        topic = await clients.topic("arrow-reset")
        async with clients.producer() as producer:
            for n in range(10):
                await producer.send(topic, b"%d" % n)
        found: list[Any] = []
        async with clients.consumer(EXACT._replace(reset=Reset.EARLIEST)) as consumer:
            with pytest.raises(TimedOut):
                await read_into(found, consumer, topic, 50, 60)
        assert rows_of(found) == []

    real(bootstrap, work)


def reading(
    work: Callable[[FakeCluster, Consumer], Awaitable[Any]], config: ConsumerConfig = EXACT
) -> FakeCluster:
    """Run `work` with a consumer and a cluster whose topic t has ten batches of ten records."""

    async def main() -> FakeCluster:
        cluster = FakeCluster()
        cluster.add_topic("t", 2)
        for partition in range(2):
            for _ in range(10):
                cluster.partition("t", partition).append(bytes(build_batch(simple_records(10))))
        await cluster.start()
        network = cluster.network.host("client")
        async with Consumer(network, LoopClock(), SeededRandom(1), cluster.bootstrap, config) as consumer:
            await work(cluster, consumer)
        return cluster

    return run(main())


@pytest.mark.parametrize("read_committed", [False, True])
@pytest.mark.parametrize("max_version", [6, 16])  # without sessions, and with them
def test_a_range_whose_tail_is_gone_ends_by_itself(read_committed: bool, max_version: int) -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        cluster.max_versions["FetchRequest"] = max_version
        log = cluster.partition("t")
        log.batches, log.emptied_to = log.batches[:8], 100  # as after compaction
        rows = rows_of([each async for each in read_range(consumer, ("t", 0), 75, 100)])
        assert [row["offset"] for row in rows] == [75, 76, 77, 78, 79]
        assert rows_of([each async for each in read_range(consumer, ("t", 0), 80, 85)]) == []

    reading(work, EXACT._replace(read_committed=read_committed, partition_max_bytes=200))


def test_a_tail_that_goes_while_it_is_read() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        found: list[Any] = []
        async for batch in read_range(consumer, ("t", 0), 0, 100):
            found.append(batch)
            cluster.partition("t").compact(100)
        assert [row["offset"] for row in rows_of(found)] == list(range(10))

    reading(work, EXACT._replace(partition_max_bytes=200))


def test_a_range_beyond_the_end_is_waited_for() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        found: list[Any] = []
        with pytest.raises(TimedOut, match="at offset 100, and the range ends at 101"):
            await read_into(found, consumer, "t", 90, 101)
        assert len(rows_of(found)) == 10
        written = asyncio.get_running_loop().call_later(
            19, cluster.partition("t").append, bytes(build_batch(simple_records(1)))
        )
        late = [each async for each in read_range(consumer, ("t", 0), 100, 101, timeout_ms=20_000)]
        assert [row["offset"] for row in rows_of(late)] == [100]
        assert not written.cancelled()

    reading(work)


def test_silence_for_the_sake_of_a_quota_proves_nothing() -> None:
    """A broker that throttles may answer with nothing at all, whatever it has."""
    throttled: list[Any] = []

    async def silent(broker: FakeBroker, request: Any, version: int) -> Message | None:
        if isinstance(request, FetchRequest) and request.session_epoch > 0 and len(throttled) < 3:
            throttled.append(request)
            due, wanted = broker.sessions[request.session_id]
            broker.sessions[request.session_id] = (due + 1, wanted)
            return FetchResponse(
                throttle_time_ms=100,
                error_code=0,
                session_id=request.session_id,
                responses=[],
                node_endpoints=(),
            )
        return None

    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        cluster.rules.append(silent)
        rows = rows_of([each async for each in read_range(consumer, ("t", 0), 0, 100)])
        assert [row["offset"] for row in rows] == list(range(100))
        assert len(throttled) == 3

    reading(work, EXACT._replace(partition_max_bytes=200))


def empty_at_first(change: Callable[[PartitionData], None]) -> Rule:
    """Three fetches are answered without records, though there are some."""
    left = [3]

    async def rule(broker: FakeBroker, request: Any, version: int) -> Message | None:
        if not isinstance(request, FetchRequest) or not left[0]:
            return None
        left[0] -= 1
        answer = await broker.on_fetch(request, version)
        assert isinstance(answer, FetchResponse)
        for topic in answer.responses:
            for each in topic.partitions:
                assert each.records
                each.records = b""
                change(each)
        return answer

    return rule


def test_an_answer_that_names_another_replica_proves_nothing() -> None:
    def name_another(answer: PartitionData) -> None:
        answer.preferred_read_replica = 7

    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        cluster.rules.append(empty_at_first(name_another))
        rows = rows_of([each async for each in read_range(consumer, ("t", 0), 0, 100)])
        assert [row["offset"] for row in rows] == list(range(100))

    reading(work, EXACT._replace(rack_id="r"))


@pytest.mark.parametrize("is_known", [True, False])
def test_what_is_in_tiered_storage_may_come_late(is_known: bool) -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        cluster.partition("t").local_start = 50
        cluster.max_versions["ListOffsetsRequest"] = 8 if is_known else 7
        cluster.rules.append(empty_at_first(lambda _: None))
        rows = rows_of([each async for each in read_range(consumer, ("t", 0), 10, 20)])
        # brokers that are too old to tell have no such storage: there nothing is nothing
        assert [row["offset"] for row in rows] == (list(range(10, 20)) if is_known else [])

    reading(work)


def test_what_comes_of_all_partitions() -> None:
    async def work(cluster: FakeCluster, consumer: Consumer) -> None:
        consumer.assign([("t", 0), ("t", 1)])
        batches = [each async for each in consumer.arrow(timeout_ms=2000, columns=["partition", "offset"])]
        assert {tuple(each.schema.names) for each in batches} == {("partition", "offset")}
        for partition in range(2):
            offsets = [row["offset"] for row in rows_of(batches) if row["partition"] == partition]
            assert offsets == list(range(100))
        cluster.partition("t", 1).append(bytes(build_batch(simple_records(3))))
        async for batch in consumer.arrow():  # without an end
            assert batch.column("offset").to_pylist() == [100, 101, 102]
            break

    reading(work, ConsumerConfig(reset=Reset.EARLIEST, partition_max_bytes=200))


def test_large_records_come_one_after_the_other(bootstrap: str) -> None:
    """What is held at a time does not grow with what a partition holds."""
    value = bytes(3_000_000)

    async def work(clients: Clients) -> None:
        topic = await clients.topic("arrow-large", max_message_bytes="4000000")
        config = ProducerConfig(max_request_bytes=4_000_000)
        async with clients.producer(config) as producer:
            for _ in range(6):
                await producer.send(topic, value)
        async with clients.consumer(EXACT) as consumer:
            sizes = [each.nbytes async for each in read_range(consumer, (topic, 0), 0, 6)]
        assert len(sizes) == 6
        assert all(3_000_000 <= size < 3_001_000 for size in sizes)

    real(bootstrap, work)


@pytest.mark.java
def test_aborted_records_and_markers_are_passed_over(apache_kafka: str) -> None:
    settings = {"bootstrap.servers": apache_kafka, "transactional.id": "arrow"}

    async def work(clients: Clients) -> list[int]:
        topic = await clients.topic("arrow-transactions")
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions()
        for end in (producer.abort_transaction, producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for n in range(10):
                producer.produce(topic, b"%d" % n, partition=0)
            producer.flush()
            end()
        config = EXACT._replace(read_committed=True, partition_max_bytes=100)  # a batch an answer
        async with clients.consumer(config) as consumer:
            (end_offset,) = (await consumer.end_offsets((topic, 0))).values()
            assert end_offset == 33  # each transaction has a marker
            rows = rows_of([each async for each in read_range(consumer, (topic, 0), 0, end_offset)])
        return [row["offset"] for row in rows]

    assert real(apache_kafka, work) == list(range(11, 21))
