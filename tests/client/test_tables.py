"""Arrow tables through the producer: every row once, in its partition, in the order of the table."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import defaultdict
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client import tables
from barnabas.client.errors import BadTable, BrokerError, NoSuchPartition, RecordTooLarge, TimedOut
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.client.tables import BatchLimits, row_batches, rows_by_topic
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema import Message
from barnabas.records.columnar import partition_of
from barnabas.records.compression import Codec
from barnabas.records.reader import read_records
from tests.client.fake_broker import Drop, FakeBroker, FakeCluster, refuse_produce
from tests.client.real import Clients, real
from tests.client.test_producer import producing

NOW_MS = 99
CHOSEN = 0  # for rows that may go anywhere, among others that may not
TOO_LARGE, AFTER_APPEND = 10, 20
LIMITS = BatchLimits(16384, 1 << 20, Codec.NONE, False)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Row = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


def written(table: Any, partitions: int, topic: str | None = None, limits: BatchLimits = LIMITS) -> Any:
    """What goes where: the records by topic and partition (None: any)."""
    found: dict[tuple[str, int | None], list[Row]] = defaultdict(list)
    for rows in rows_by_topic(table, topic, NOW_MS):
        for batch in row_batches(rows, partitions, limits, lambda: CHOSEN):
            records = list(read_records(batch.data))
            assert len(records) == batch.rows
            found[rows.topic, batch.partition] += [
                (each.key, each.value, each.timestamp, each.headers) for each in records
            ]
    return dict(found)


# ---- pure: which rows go where ----------------------------------------------------------------------------

FIELDS = st.none() | st.binary(max_size=12)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.sampled_from([b"", b"a", b"b", b"c" * 40]),
            "value": FIELDS,
            "timestamp": st.none() | st.integers(-(10**12), 10**12),
            "headers": st.none() | st.lists(st.tuples(st.text(max_size=3), FIELDS), max_size=3),
            "topic": st.sampled_from(["t", "u", "w"]),
            "partition": st.none() | st.integers(0, 2),
        }
    ),
    max_size=30,
)


PLACING = {"key", "partition"}


def expected(rows: list[dict[str, Any]], names: list[str], partitions: int) -> Any:
    found: dict[tuple[str, int | None], list[Row]] = defaultdict(list)
    fixed = {row["topic"] for row in rows if any(row[name] is not None for name in PLACING & set(names))}
    for row in rows:
        has = {name: row[name] if name in names else None for name in row}
        place = has["partition"]
        if place is None and has["key"] is not None:
            place = partition_of(has["key"], partitions)
        if place is None and row["topic"] in fixed:
            place = CHOSEN
        time_ms = NOW_MS if has["timestamp"] is None else has["timestamp"]
        found[row["topic"], place].append((has["key"], row["value"], time_ms, tuple(has["headers"] or ())))
    return dict(found)


def table_of(rows: list[dict[str, Any]], names: list[str]) -> Any:
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "timestamp": pa.timestamp("ms"),
        "topic": pa.string(),
        "partition": pa.int32(),
    }
    columns = {
        name: pa.array([row[name] for row in rows], types[name]) for name in names if name != "headers"
    }
    if "headers" in names:
        pairs = [
            None if row["headers"] is None else [{"key": k, "value": v} for k, v in row["headers"]]
            for row in rows
        ]
        columns["headers"] = pa.array(pairs, HEADERS)
    return pa.table(columns)


@settings(deadline=None)
@given(
    ROWS,
    st.sets(st.sampled_from(["key", "timestamp", "headers", "partition"])),
    st.integers(3, 5),
    st.sampled_from([80, 200, 16384]),
    st.integers(0, 4),
)
def test_every_row_is_in_its_place(
    rows: list[dict[str, Any]], extra: set[str], partitions: int, batch_bytes: int, cut: int
) -> None:
    names = ["value", "topic", *sorted(extra)]
    table = table_of(rows, names)
    limits = LIMITS._replace(batch_bytes=batch_bytes)
    whole = expected(rows, names, partitions)
    assert written(table, partitions, limits=limits) == whole
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])  # sliced, and in chunks
    assert written(chunked, partitions, limits=limits) == whole
    assert written(table.slice(cut), partitions) == expected(rows[cut:], names, partitions)


def test_rows_with_and_without_a_key_keep_their_order_in_a_single_partition() -> None:
    keys = [b"a", None, b"b", None]
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": [b"0", b"1", b"2", b"3"]})
    found = written(table, 1, "t")
    assert [(key, value) for key, value, _, _ in found["t", 0]] == [
        (b"a", b"0"),
        (None, b"1"),
        (b"b", b"2"),
        (None, b"3"),
    ]


KINDS = [
    pa.string(),
    pa.large_string(),
    pa.large_binary(),
    pa.binary_view(),
    pa.string_view(),
    pa.binary(2),
    pa.dictionary(pa.int8(), pa.string()),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_bytes_and_text_in_any_shape(kind: Any) -> None:
    plain = pa.array(["ab", None, "cd", "ab"])
    column = plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain.cast(kind)
    batch = pa.record_batch({"value": column, "key": column}).slice(1)
    rows = written(batch, 1, "t")["t", 0]
    assert [row[:2] for row in rows] == [(None, None), (b"cd", b"cd"), (b"ab", b"ab")]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Prague"])
def test_timestamps_of_any_unit(unit: str, zone: str | None) -> None:
    times = pa.array([1_700_000_000_000, None, -3_000], pa.int64()).cast(pa.timestamp("ms"))
    column = times.cast(pa.timestamp(unit, zone))
    batch = pa.record_batch({"value": pa.nulls(3), "timestamp": column})
    ((_, rows),) = written(batch, 1, "t").items()
    assert [row[2] for row in rows] == [1_700_000_000_000, NOW_MS, -3_000]


def test_topics_may_be_a_dictionary_and_one_named_is_that_of_all() -> None:
    topics = pa.array(["b", "a", "b", "a"]).dictionary_encode()
    batch = pa.record_batch({"value": [b"0", b"1", b"2", b"3"], "topic": topics})
    found = {place: [row[1] for row in rows] for place, rows in written(batch, 1).items()}
    assert found == {("b", None): [b"0", b"2"], ("a", None): [b"1", b"3"]}
    assert list(written(batch, 1, "named")) == [("named", None)]


def test_a_dictionary_may_hold_a_topic_twice() -> None:
    topics = pa.DictionaryArray.from_arrays([0, 1, 0], ["a", "a"])
    batch = pa.record_batch({"value": [b"0", b"1", b"2"], "topic": topics})
    assert [row[1] for row in written(batch, 1)["a", None]] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_bytes_and_text_in_any_shape_for_several_topics(kind: Any) -> None:
    plain = pa.array(["ab", None, "cd"])
    column = plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain.cast(kind)
    batch = pa.record_batch({"value": column, "topic": ["x", "y", "x"]})
    found = {place: [row[1] for row in rows] for place, rows in written(batch, 1).items()}
    assert found == {("x", None): [b"ab", b"cd"], ("y", None): [None]}


@pytest.mark.parametrize("text", [pa.string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("topics", [["x", "x"], ["x", "y"]])
def test_headers_go_by_the_names_of_their_fields(text: Any, topics: list[str]) -> None:
    kind = pa.list_(pa.struct([("value", pa.binary()), ("key", text)]))
    headers = pa.array([[{"key": "k", "value": b"v"}], None], kind)
    batch = pa.record_batch({"value": [b"0", b"1"], "topic": pa.array(topics, text), "headers": headers})
    rows = [row for rows in written(batch, 1).values() for row in rows]
    assert [row[3] for row in rows] == [(("k", b"v"),), ()]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": [b"k"]}, "no column 'value'"),
        ({"value": [b"v"], "colour": [1]}, "no record has a 'colour'"),
        ({"value": [1]}, "'value' must hold bytes or text, not int64"),
        ({"value": [b"v"], "key": [1.5]}, "'key' must hold bytes or text, not double"),
        ({"value": [b"v"], "timestamp": ["noon"]}, "'timestamp' must hold timestamps"),
        ({"value": [b"v"], "headers": ["h"]}, "'headers' must hold lists of structs"),
        ({"value": [b"v"], "headers": [[{"key": None, "value": b""}]]}, "1 headers have no key"),
        ({"value": [b"v"], "headers": [[{"key": 1, "value": b""}]]}, "'headers.key' must hold bytes"),
        ({"value": [b"v"], "headers": [[{"name": "k", "value": b""}]]}, "structs of key and value"),
        ({"value": [b"v"], "timestamp": pa.array([1 << 63], pa.uint64())}, "'timestamp': Integer value"),
        ({"value": [b"v"], "partition": ["one"]}, "'partition' must hold whole numbers"),
        ({"value": [b"v"], "partition": [1 << 40]}, "'partition': Integer value"),
        ({"value": [b"v"], "topic": [None]}, "1 rows have no topic"),
        ({"value": [b"v"], "topic": [7]}, "'topic' must hold text"),
    ],
)
def test_a_table_that_does_not_fit(columns: dict[str, Any], message: str) -> None:
    table = pa.table(columns)
    with pytest.raises(BadTable, match=message):
        written(table, 1, None if "topic" in columns else "t")


def test_a_column_that_is_there_twice() -> None:
    with pytest.raises(BadTable, match="more than one column 'value'"):
        written(pa.table([[b"v"], [b"w"]], names=["value", "value"]), 1, "t")


def test_a_topic_must_be_named() -> None:
    with pytest.raises(BadTable, match="to which topic"):
        written(pa.table({"value": [b"v"]}), 1)


@pytest.mark.parametrize("named", [[0, 4], [0, -1], [None, 4], [None, -1], [None, -2]])
def test_a_partition_that_is_not_there(named: list[int | None]) -> None:
    batch = pa.record_batch({"value": [b"v", b"v"], "partition": pa.array(named, pa.int32())})
    with pytest.raises(NoSuchPartition, match=f"t has 4 partitions, no number {named[1]}"):
        written(batch, 4, "t")


def test_a_large_table_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PIECE_BYTES", 500)
    values = [b"%d" % number for number in range(1000)]
    small = [pa.record_batch({"value": values[at : at + 10]}) for at in range(0, 1000, 10)]
    for table in (pa.table({"value": values}), pa.Table.from_batches(small)):
        pieces = list(rows_by_topic(table, "t", NOW_MS))
        assert len(pieces) > 10
        assert max(piece.columns.rows for piece in pieces) < 100
        assert [row[1] for row in written(table, 1, "t")["t", None]] == values


def test_dictionaries_weigh_the_same_however_few_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PIECE_BYTES", 5000)
    values = [b"%04d" % (number % 100) * 30 for number in range(500)]
    column = pa.array(values).dictionary_encode()
    topics = pa.array([f"topic-{number % 3}" for number in range(500)]).dictionary_encode()
    first = pa.record_batch({"value": column, "topic": topics})
    other = pa.record_batch({"value": column, "topic": pa.array(["another"] * 500).dictionary_encode()})
    assert len(list(rows_by_topic(first, "t", NOW_MS))) < 10
    found = written(pa.Table.from_batches([first, other]), 1)
    assert {name: len(rows) for (name, _), rows in found.items()} == {
        "topic-0": 167,
        "topic-1": 167,
        "topic-2": 166,
        "another": 500,
    }
    assert [row[1] for row in found["another", None]] == values


# ---- on the way -------------------------------------------------------------------------------------------


def test_rows_are_acknowledged_together() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        values = [b"%d" % number for number in range(1000)]
        before = await producer.send("t", b"before")
        table = pa.table({"value": values, "partition": pa.array([0] * 1000, pa.int32())})
        told = await producer.send_table(table, "t")
        after = await producer.send("t", b"after")
        assert await told == 1000
        assert ((await before).offset, (await after).offset) == (0, 1001)
        assert cluster.partition("t").values() == [b"before", *values, b"after"]
        assert await (await producer.send_table(table.slice(0, 0), "t")) == 0

    producing(work, ProducerConfig(max_request_bytes=2000))


def test_rows_without_a_key_stick_to_a_partition_for_a_batch() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        table = pa.table({"value": [bytes(100)] * 1000})
        assert await (await producer.send_table(table, "t")) == 1000
        counts = [len(cluster.partition("t", each).values()) for each in range(3)]
        assert sum(counts) == 1000
        assert min(counts) > 100
        batches = [
            header.record_count for each in range(3) for header, _ in cluster.partition("t", each).batches
        ]
        assert min(sorted(batches)[1:]) > 50  # all but the last are full

    producing(work, ProducerConfig(max_request_bytes=16_000), partitions=3)


def test_rows_with_and_without_a_key_are_in_the_order_of_the_table() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        keys = [b"%d" % (number % 7) if number % 3 else None for number in range(3000)]
        values = [b"%04d" % number for number in range(3000)]
        for _ in range(4):
            await producer.send_table(pa.table({"key": keys, "value": values}), "t")
        await producer.flush()
        without_key = 0
        for partition in range(4):
            records = cluster.partition("t", partition).records()
            found = [record.value for record in records]
            ends = [at for at in range(1, len(found)) if found[at] < found[at - 1]]  # type: ignore[operator]
            assert len(ends) <= 3  # where another table begins
            without_key += len([record for record in records if record.key is None])
        assert without_key == 4000

    producing(work, ProducerConfig(max_request_bytes=4000), partitions=4)


def test_small_batches_for_many_partitions_go_together() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        rows = [b"%d" % number for number in range(1000)]
        for _ in range(3):
            assert await (await producer.send_table(pa.table({"value": rows, "key": rows}), "t")) == 1000
        assert len(cluster.asked("Produce")) == 3

    producing(work, partitions=100)


def test_no_more_is_held_than_the_buffer_takes() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        held: list[int] = []

        async def note(broker: FakeBroker, request: Any, version: int) -> Message | None:
            if isinstance(request, ProduceRequest):
                held.append(producer._accumulator.used_bytes)
            return None

        cluster.rules.append(note)
        table = pa.table({"value": [bytes(100)] * 5000, "key": [b"%d" % n for n in range(5000)]})
        assert await (await producer.send_table(table, "t")) == 5000
        assert max(held) <= 50_000

    producing(work, ProducerConfig(buffer_bytes=50_000, max_request_bytes=10_000), partitions=2)


def test_a_row_that_no_request_takes() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        with pytest.raises(RecordTooLarge, match="max_request_bytes=2000"):
            await producer.send_table(pa.table({"value": [b"small", bytes(3000)]}), "t")
        cluster.brokers[1].stop()
        with pytest.raises(TimedOut, match="buffer_bytes"):
            await producer.send_table(pa.table({"value": [bytes(100)] * 1000}), "t")

    producing(work, ProducerConfig(max_request_bytes=2000, buffer_bytes=8000, delivery_timeout_ms=200_000))


def test_rows_that_are_refused() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        async def refuse(broker: FakeBroker, request: Any, version: int) -> Message | None:
            return refuse_produce(request, 87) if isinstance(request, ProduceRequest) else None

        cluster.rules.append(refuse)
        told = await producer.send_table(pa.table({"value": [b"1", b"2"]}), "t")
        with pytest.raises(BrokerError, match="INVALID_RECORD"):
            await told
        with pytest.raises(BrokerError, match="INVALID_RECORD"):  # while it still takes rows
            await producer.send_table(pa.table({"value": [bytes(1000)] * 200}), "t")
        cluster.rules.clear()
        assert await (await producer.send_table(pa.table({"value": [b"3"]}), "t")) == 1

    producing(work, ProducerConfig(max_request_bytes=4000, buffer_bytes=12_000))


# ---- batches that are too large for the topic --------------------------------------------------------------


def too_large_above(limit_bytes: int, refused: list[int]) -> Any:
    async def refuse(broker: FakeBroker, request: Any, version: int) -> Message | None:
        if isinstance(request, ProduceRequest):
            (topic,) = request.topic_data
            (data,) = topic.partition_data
            if len(data.records) > limit_bytes:  # type: ignore[arg-type]
                refused.append(len(data.records))  # type: ignore[arg-type]
                return refuse_produce(request, TOO_LARGE)
        return None

    return refuse


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_batch_that_the_topic_does_not_take_goes_in_halves(codec: Codec) -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        refused: list[int] = []
        cluster.rules.append(too_large_above(1000, refused))
        values = [os.urandom(50) for _ in range(300)]
        told = await producer.send_table(pa.table({"value": values, "key": values}), "t")
        await producer.flush()  # of the halves as well
        assert told.done()
        assert await told == 300
        assert cluster.partition("t").values() == values
        numbers = [header.base_sequence for header, _ in cluster.partition("t").batches]
        assert numbers[0] == 0
        assert numbers == sorted(numbers)
        so_far = len(refused)
        assert await (await producer.send_table(pa.table({"value": values}), "t")) == 300
        assert len(refused) == so_far  # it has learnt what the topic takes

    producing(work, ProducerConfig(max_request_bytes=8000, compression=codec))


def test_single_records_in_halves_know_where_they_are() -> None:
    async def work(cluster: FakeCluster, producer: Producer) -> None:
        cluster.rules.append(too_large_above(300, []))
        values = [b"%03d" % number * 10 for number in range(40)]
        waiting = [await producer.send("t", value, timestamp_ms=at) for at, value in enumerate(values)]
        told = await asyncio.gather(*waiting)
        assert [(each.offset, each.timestamp_ms) for each in told] == [(n, n) for n in range(40)]
        assert cluster.partition("t").values() == values
        large = await producer.send("t", bytes(400))
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):  # and cannot be halved
            await large

    producing(work, ProducerConfig(batch_bytes=4000))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["ok", "lost", "dropped", "unsure"]), max_size=25), st.integers(1, 3))
def test_halves_keep_their_numbers_whatever_is_lost(fates: list[str], tables_sent: int) -> None:
    """Answers are lost and requests are; nothing is written twice, out of order or not at all."""

    async def work(cluster: FakeCluster, producer: Producer) -> None:
        async def fate(broker: FakeBroker, request: Any, version: int) -> Message | None:
            what = fates.pop(0) if isinstance(request, ProduceRequest) and fates else "ok"
            if what == "unsure":  # written, but not everywhere
                broker.on_produce(request, version)
                return refuse_produce(request, AFTER_APPEND)
            if what != "ok":
                raise Drop(first=what == "lost")
            return None

        cluster.rules += [too_large_above(700, []), fate]
        values = [b"%04d" % number * 5 for number in range(100 * tables_sent)]
        told = [
            await producer.send_table(pa.table({"value": values[at : at + 100]}), "t")
            for at in range(0, len(values), 100)
        ]
        assert [await each for each in told] == [100] * tables_sent
        assert cluster.partition("t").values() == values

    producing(work, ProducerConfig(max_request_bytes=6000, delivery_timeout_ms=600_000))


# ---- for real ---------------------------------------------------------------------------------------------


def consumed(bootstrap: str, topic: str, partitions: int, count: int) -> dict[int, list[Any]]:
    """What another client reads, by partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "tables"})
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(partitions)])
    found: dict[int, list[Any]] = defaultdict(list)
    while sum(len(each) for each in found.values()) < count:
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        found[message.partition()].append(message)
    consumer.close()
    return found


@pytest.mark.parametrize("codec", list(Codec))
def test_another_client_reads_the_rows(bootstrap: str, codec: Codec) -> None:
    rows = 2000
    keys = [b"key-%d" % (number % 37) if number % 3 else None for number in range(rows)]
    values = [b"%d" % number if number % 5 else None for number in range(rows)]
    headers = [[{"key": "n", "value": b"%d" % number}] if number % 2 else None for number in range(rows)]
    times = pa.array(range(1, rows + 1), pa.timestamp("ms", "UTC"))
    table = pa.table(
        {"key": keys, "value": values, "headers": pa.array(headers, HEADERS), "timestamp": times}
    )

    async def work(clients: Clients) -> str:
        topic = await clients.topic(f"tables-{codec.name}", 4)
        async with clients.producer(ProducerConfig(compression=codec, max_request_bytes=20_000)) as producer:
            assert await (await producer.send_table(table, topic)) == rows
        return topic

    topic = real(bootstrap, work)
    found = consumed(bootstrap, topic, 4, rows)
    seen = set()
    for partition, messages in found.items():
        by_key = [each for each in messages if each.key() is not None]
        for run in (by_key, [each for each in messages if each.key() is None]):
            numbers = [message.timestamp()[1] - 1 for message in run]
            assert by_key is not run or numbers == sorted(numbers)
            seen.update(numbers)
        for message in messages:
            number = message.timestamp()[1] - 1
            assert (message.key(), message.value()) == (keys[number], values[number])
            assert message.headers() == ([("n", b"%d" % number)] if number % 2 else None)
        assert all(partition_of(each.key(), 4) == partition for each in by_key)
    assert seen == set(range(rows))


def test_a_topic_that_takes_small_batches_only(bootstrap: str) -> None:
    values = [bytes([number % 256]) * 200 for number in range(2000)]

    async def work(clients: Clients) -> list[Any]:
        topic = await clients.topic("tables-small", max_message_bytes="5000")
        async with clients.producer() as producer:
            assert await (await producer.send_table(pa.table({"value": values}), topic)) == 2000
        return await clients.read(topic, 2000)

    assert [record.value for record in real(bootstrap, work)] == values


SCRIPT = """
import asyncio, sys
import pyarrow as pa
from barnabas.client.arrow import read_range
from barnabas.records import kernel
from tests.client.real import Clients

async def main(clients):
    topic = await clients.topic("tables-pure", 2)
    keys = [b"%d" % number for number in range(300)]
    async with clients.producer() as producer:
        assert await (await producer.send_table(pa.table({"key": keys, "value": keys}), topic)) == 300
    found = []
    async with clients.consumer() as consumer:
        for partition in range(2):
            (end,) = (await consumer.end_offsets((topic, partition))).values()
            async for batch in read_range(consumer, (topic, partition), 0, end):
                found += batch.column("value").to_pylist()
    assert sorted(found) == sorted(keys)
    print(kernel.NAME, len(found))

asyncio.run(main(Clients(sys.argv[1])))
"""


def test_the_pure_kernel_does_the_same(barnabas: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, barnabas],
        env={**os.environ, "BARNABAS_KERNEL": "pure"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "pure 300\n", done.stderr
