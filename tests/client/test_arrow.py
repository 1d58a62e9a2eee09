"""Ranges of offsets as Arrow: the records that a consumer would see, column by column."""

from __future__ import annotations

from collections.abc import Iterable
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
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.control import ControlType, build_end_transaction
from barnabas.records.record import Record
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
