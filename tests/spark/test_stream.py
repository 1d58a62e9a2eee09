"""A stream's source as Spark calls it, against a real broker, without Spark."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.errors import TimedOut, UnknownTopic
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer import Producer
from barnabas.log.partition import PartitionLog
from barnabas.spark.driving import seams
from barnabas.spark.lost import DataLost
from barnabas.spark.option_values import OptionError
from barnabas.spark.options import parse_options
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.reading import BadTime, RangePartition
from barnabas.spark.stream_reader import StreamReader
from barnabas.testing import Broker
from tests.support.raw_client import wait_until
from tests.support.targets import NO_RETENTION

SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "5",
    "log.cleaner.delete.retention.ms": "0",
    "log.cleaner.min.cleanable.ratio": "0.01",
    **NO_RETENTION,
}
TIME_MS = 1_700_000_000_000
ALL = ReadAllAvailable()
Written = dict[str, dict[str, int]]
Open = Callable[..., StreamReader]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def stream(broker: Broker) -> Iterator[Open]:
    """A reader of a topic, from its beginning; options by name."""
    opened: list[StreamReader] = []

    def begin(topic: str, **options: str) -> StreamReader:
        given = {"startingOffsets": "earliest", "fetchOffset.retryIntervalMs": "1", **options}
        if not {"assign", "subscribePattern"} & given.keys():
            given["subscribe"] = topic
        bootstrap = {"kafka.bootstrap.servers": broker.bootstrap}
        opened.append(StreamReader(parse_options({**bootstrap, **given}, is_stream=True)))
        return opened[-1]

    yield begin
    for reader in opened:
        reader.stop()


def ask(broker: Broker, work: Callable[[Admin], Coroutine[Any, Any, Any]]) -> Any:
    async def asked() -> Any:
        async with Admin(*seams(), broker.bootstrap) as admin:
            return await work(admin)

    return asyncio.run(asked())


def create(broker: Broker, topic: str, *counts: int) -> None:
    """A topic with so many records in each partition, a second apart."""
    ask(broker, lambda admin: admin.create_topics([NewTopic(topic, len(counts), 1)]))
    for partition, count in enumerate(counts):
        send(broker, topic, count, partition)


def send(broker: Broker, topic: str, count: int, partition: int = 0) -> None:
    async def sent() -> None:
        async with Producer(*seams(), broker.bootstrap) as producer:
            for n in range(count):
                await producer.send(topic, b"%d" % n, partition=partition, timestamp_ms=TIME_MS + 1000 * n)

    asyncio.run(sent())


def ranges(reader: StreamReader, start: Written, end: Written) -> list[tuple[str, int, int, int]]:
    return [tuple(each.offsets) for each in reader.partitions(start, end)]  # type: ignore[misc]


@pytest.fixture(scope="module")
def begins(broker: Broker) -> str:
    create(broker, "begins", 10, 20)
    return "begins"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"0": 0, "1": 0}),
        ({"startingOffsets": "latest"}, {"0": 10, "1": 20}),
        ({"startingOffsets": '{"begins": {"0": 4, "1": -1}}'}, {"0": 4, "1": 20}),
        ({"startingTimestamp": str(TIME_MS + 8500)}, {"0": 9, "1": 9}),
        (
            {"startingTimestamp": str(TIME_MS + 15_000), "startingOffsetsByTimestampStrategy": "latest"},
            {"0": 10, "1": 15},
        ),
        ({"assign": '{"begins": [1]}'}, {"1": 0}),
        ({"startingOffsets": '{"begins": {"0": 99, "1": 1}}', "failOnDataLoss": "false"}, {"0": 10, "1": 1}),
    ],
)
def test_where_a_stream_begins(
    begins: str, stream: Open, options: dict[str, str], expected: dict[str, int]
) -> None:
    assert stream(begins, **options).initialOffset() == {begins: expected}


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"startingOffsets": '{"begins": {"0": 99, "1": 1}}'}, DataLost, "begins-0 has offsets 0 to 10.* 99"),
        ({"startingOffsets": '{"begins": {"0": 9}}'}, OptionError, "begins-1 are not named"),
        ({"startingTimestamp": str(TIME_MS + 15_000)}, OptionError, "begins-0 has no record as young"),
        ({"assign": '{"begins": [2]}'}, OptionError, "no partition 2, it has 2"),
        ({"subscribe": "nowhere"}, UnknownTopic, "'nowhere'.*check the spelling"),
    ],
)
def test_where_it_cannot_begin(
    begins: str, stream: Open, options: dict[str, str], error: type[Exception], said: str
) -> None:
    others = {name: text for name, text in options.items() if name != "subscribe"}
    with pytest.raises(error, match=said):
        stream(options.get("subscribe", begins), **others).initialOffset()


def test_batches_follow_each_other(broker: Broker, stream: Open) -> None:
    create(broker, "follow", 30, 10)
    reader = stream("follow", maxRecordsPerPartition="8")
    assert reader.getDefaultReadLimit() == ALL
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(20))
    assert first == {"follow": {"0": 15, "1": 5}}
    assert reader.reportLatestOffset() == {"follow": {"0": 30, "1": 10}}
    assert ranges(reader, start, first) == [("follow", 0, 0, 7), ("follow", 0, 7, 15), ("follow", 1, 0, 5)]
    second = reader.latestOffset(first, ALL)
    assert second == {"follow": {"0": 30, "1": 10}}
    assert reader.latestOffset(second, ALL) == second
    assert ranges(reader, second, second) == []
    send(broker, "follow", 1, 1)
    assert reader.latestOffset(second, ALL) == {"follow": {"0": 30, "1": 11}}


def test_the_copy_of_a_task_has_no_connections(broker: Broker, stream: Open) -> None:
    create(broker, "copied", 3)
    reader = stream("copied", columns="offset")
    part = reader.partitions(reader.initialOffset(), {"copied": {"0": 3}})[0]
    copy, part = pickle.loads(pickle.dumps((reader, part)))
    assert [batch.to_pydict() for batch in copy.read(part)] == [{"offset": [0, 1, 2]}]
    assert list(copy.__dict__) == ["_options"]


def test_the_start_of_a_first_batch_is_not_lost_in_a_crash(broker: Broker, stream: Open) -> None:
    create(broker, "crash", 5)
    reader = stream("crash", startingOffsets="latest")
    start = reader.initialOffset()
    send(broker, "crash", 3)
    assert reader.initialOffset() == start == {"crash": {"0": 5}}  # Spark asks twice
    end = reader.latestOffset(start, ALL)
    assert end == start  # so the checkpoint has where it began
    # Spark is killed, and more comes; it plans the same batch again, with a start of its own
    send(broker, "crash", 3)
    again = stream("crash", startingOffsets="latest")
    assert ranges(again, again.initialOffset(), end) == []
    following = again.latestOffset(end, ALL)
    assert ranges(again, end, following) == [("crash", 0, 5, 11)]


def test_a_partition_that_comes_before_the_first_batch_is_not_lost_in_a_crash(
    broker: Broker, stream: Open
) -> None:
    create(broker, "early", 1)
    options = {"subscribePattern": "early.*", "startingOffsets": "latest"}
    reader = stream("", **options)
    start = reader.initialOffset()
    create(broker, "early-too", 4)
    end = reader.latestOffset(start, ALL)
    again = stream("", **options)
    assert ranges(again, again.initialOffset(), end) == []
    assert ranges(again, end, again.latestOffset(end, ALL)) == [("early-too", 0, 0, 4)]


def test_a_stream_from_the_end_reads_what_comes(broker: Broker, stream: Open) -> None:
    create(broker, "coming", 5, 5)
    reader = stream("coming", startingOffsets='{"coming": {"0": -1, "1": 3}}')
    start = reader.initialOffset()
    send(broker, "coming", 2)
    first = reader.latestOffset(start, ALL)
    assert first == {"coming": {"0": 5, "1": 5}}
    assert ranges(reader, start, first) == [("coming", 1, 3, 5)]
    nothing_else = stream("coming", startingOffsets="latest")
    start = nothing_else.latestOffset(nothing_else.initialOffset(), ALL)
    assert start == nothing_else.initialOffset()  # the second batch begins where the first did
    send(broker, "coming", 2)
    second = reader.latestOffset(first, ALL)
    assert ranges(reader, first, second) == [("coming", 0, 5, 9)]
    assert ranges(nothing_else, start, nothing_else.latestOffset(start, ALL)) == [("coming", 0, 7, 9)]


def test_new_partitions_and_topics_are_read_from_their_first_record(broker: Broker, stream: Open) -> None:
    create(broker, "grow-a", 2)
    reader = stream("", subscribePattern="grow-.*")
    start = reader.initialOffset()
    ask(broker, lambda admin: admin.create_partitions({"grow-a": 2}))
    send(broker, "grow-a", 4, 1)
    create(broker, "grow-b", 3)
    end = reader.latestOffset(start, ALL)
    assert end == {"grow-a": {"0": 2, "1": 4}, "grow-b": {"0": 3}}
    assert ranges(reader, start, end) == [("grow-a", 0, 0, 2), ("grow-a", 1, 0, 4), ("grow-b", 0, 0, 3)]
    assert reader.latestOffset(start, ReadMaxRows(6)) == {"grow-a": {"0": 1, "1": 2}, "grow-b": {"0": 2}}
    # the same batch, planned by another run
    assert len(ranges(stream("", subscribePattern="grow-.*"), start, end)) == 3


def test_a_pattern_may_match_nothing_yet(broker: Broker, stream: Open) -> None:
    reader = stream("", subscribePattern="later-.*")
    assert reader.initialOffset() == {} == reader.latestOffset({}, ALL)
    assert reader.reportLatestOffset() is None
    create(broker, "later-a", 3)
    assert reader.latestOffset({}, ALL) == {"later-a": {"0": 3}}


def test_a_new_partition_that_lost_its_first_records(
    broker: Broker, stream: Open, caplog: pytest.LogCaptureFixture
) -> None:
    create(broker, "cut", 5)
    ask(broker, lambda admin: admin.delete_records({("cut", 0): 2}))
    with pytest.raises(DataLost, match=r"cut-0 is new, and begins at offset 2.*failOnDataLoss"):
        stream("cut").latestOffset({}, ALL)
    reader = stream("cut", failOnDataLoss="false")
    end = reader.latestOffset({}, ALL)
    assert ranges(reader, {}, end) == [("cut", 0, 2, 5)]
    assert "cut-0 is new, and begins at offset 2" in caplog.text


def test_a_topic_that_is_deleted(broker: Broker, stream: Open, caplog: pytest.LogCaptureFixture) -> None:
    create(broker, "kept", 1)
    create(broker, "gone", 4)
    strict, lenient = stream("kept,gone"), stream("kept,gone", failOnDataLoss="false")
    start = strict.latestOffset(strict.initialOffset(), ALL)
    assert lenient.latestOffset(lenient.initialOffset(), ALL) == start
    ask(broker, lambda admin: admin.delete_topics(["gone"]))
    with pytest.raises(DataLost, match="gone-0 is gone; it was read up to offset 4; set failOnDataLoss"):
        strict.latestOffset(start, ALL)
    assert lenient.latestOffset(start, ALL) == {"kept": {"0": 1}}
    assert "gone-0 is gone" in caplog.text


def test_a_topic_that_is_deleted_and_made_again(broker: Broker, stream: Open) -> None:
    create(broker, "anew", 4)
    strict, lenient = stream("anew"), stream("anew", failOnDataLoss="false")
    start = strict.latestOffset(strict.initialOffset(), ALL)
    assert lenient.latestOffset(lenient.initialOffset(), ALL) == start
    ask(broker, lambda admin: admin.delete_topics(["anew"]))
    create(broker, "anew", 6)  # by its offsets alone one could not tell
    with pytest.raises(DataLost, match=r"topic anew was deleted and made again; anew-0 .* offset 4"):
        strict.latestOffset(start, ALL)
    # a batch of its own goes back: one that is planned again, by another run, reads the same
    back = lenient.latestOffset(start, ALL)
    assert back == {"anew": {"0": 0}}
    assert ranges(lenient, start, back) == []
    end = lenient.latestOffset(back, ALL)
    assert ranges(lenient, back, end) == [("anew", 0, 0, 6)]
    assert lenient.latestOffset(end, ALL) == end


def test_a_topic_made_again_with_as_many_records_is_read_once(broker: Broker, stream: Open) -> None:
    create(broker, "same", 4)
    reader = stream("same", failOnDataLoss="false")
    before = reader.latestOffset(reader.initialOffset(), ALL)
    ask(broker, lambda admin: admin.delete_topics(["same"]))
    create(broker, "same", 4)
    back = reader.latestOffset(before, ALL)
    end = reader.latestOffset(back, ALL)
    assert end == before
    assert ranges(reader, back, end) == [("same", 0, 0, 4)]
    send(broker, "same", 1)
    assert ranges(reader, end, reader.latestOffset(end, ALL)) == [("same", 0, 4, 5)]


def test_a_partition_that_ends_before_what_was_read(broker: Broker, stream: Open) -> None:
    create(broker, "shorter", 4)
    start = {"shorter": {"0": 9}}
    with pytest.raises(DataLost, match="shorter-0 ends at offset 4, and was read up to 9 before"):
        stream("shorter").latestOffset(start, ALL)
    with pytest.raises(DataLost, match="shorter-0 was read up to offset 9, and goes back to 4"):
        stream("shorter").partitions(start, {"shorter": {"0": 4}})
    reader = stream("shorter", failOnDataLoss="false")
    end = reader.latestOffset(start, ALL)
    assert end == {"shorter": {"0": 4}}
    assert ranges(reader, start, end) == []


def test_what_is_there_now_and_no_more(broker: Broker, stream: Open) -> None:
    create(broker, "now", 10)
    reader = stream("now", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(6)
    first = reader.latestOffset(reader.initialOffset(), limit)
    send(broker, "now", 10)
    ask(broker, lambda admin: admin.create_partitions({"now": 2}))
    send(broker, "now", 10, 1)
    second = reader.latestOffset(first, limit)
    assert (first, second) == ({"now": {"0": 6}}, {"now": {"0": 10}})
    assert reader.latestOffset(second, limit) == second


def test_small_batches_wait(broker: Broker, stream: Open) -> None:
    create(broker, "small", 1)
    reader = stream("small", minOffsetsPerTrigger="5")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first == {"small": {"0": 1}}  # the first does not wait
    send(broker, "small", 4)
    assert reader.latestOffset(first, limit) == first
    assert reader.latestOffset(first, ALL) == {"small": {"0": 5}}  # Spark may want everything
    send(broker, "small", 1)
    assert reader.latestOffset(first, limit) == {"small": {"0": 6}}
    soon = stream("small", minOffsetsPerTrigger="5", maxTriggerDelay="0s")
    assert soon.latestOffset(first, limit) == soon.latestOffset(first, limit) == {"small": {"0": 6}}


def test_a_broker_that_starts_again(stream: Open) -> None:
    with Broker() as other:
        create(other, "restarts", 3)
        reader = stream("restarts", **{"kafka.bootstrap.servers": other.bootstrap})
        start = reader.latestOffset(reader.initialOffset(), ALL)
        other.restart()
        send(other, "restarts", 2)
        assert reader.latestOffset(start, ALL) == {"restarts": {"0": 5}}


def test_offsets_are_mirrored_to_a_group(broker: Broker, stream: Open) -> None:
    create(broker, "mirrored", 8, 2)
    reader = stream("mirrored", **{"kafka.group.id": "watched"})
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(5))
    second = reader.latestOffset(first, ALL)
    assert reader.latestOffset(second, ALL) == second  # nothing left to do: what was read is in the group
    committed = ask(broker, lambda admin: admin.list_group_offsets("watched"))
    assert {each: at.offset for each, at in committed.items()} == {
        TopicPartition("mirrored", 0): 8,
        TopicPartition("mirrored", 1): 2,
    }
    stream("mirrored", mirrorOffsets="false").latestOffset(second, ALL)
    assert "spark-mirrored" not in ask(broker, lambda admin: admin.list_groups())


def test_a_checkpoint_of_another_source(broker: Broker, stream: Open) -> None:
    with pytest.raises(ValueError, match="is it that of another source"):
        stream("begins").latestOffset(json.loads('{"logOffset": 3}'), ALL)


def rows(reader: StreamReader, start: Written, end: Written) -> list[int]:
    """The offsets that tasks would read."""
    parts = reader.partitions(start, end)
    return [row["offset"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def test_offsets_that_compaction_took_are_no_loss(broker: Broker, stream: Open) -> None:
    async def fill() -> None:
        async with Producer(*seams(), broker.bootstrap) as producer:
            for n in range(100):
                await producer.send("compact", b"%d" % n, b"%d" % (n % 10))
            for n in range(10):
                await producer.send("compact", None, b"%d" % n)

    async def roll() -> PartitionLog:
        replicas = broker.node.broker.replicas
        log = (await replicas.leader(replicas.topic("compact", b"", by_id=False), 0)).log
        await log.roll()
        return log

    configs = {"cleanup.policy": "compact", "delete.retention.ms": "0"}
    ask(broker, lambda admin: admin.create_topics([NewTopic("compact", 1, 1, configs)]))
    reader = stream("compact", columns="offset")
    asyncio.run(fill())
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    log = broker.run(roll())
    wait_until(lambda: log.cleaned_offset == 110, "it is compacted")
    left = rows(reader, start, end)
    assert len(left) <= 10
    assert all(90 <= offset < 110 for offset in left)
    middle = reader.latestOffset(start, ReadMaxRows(50))
    assert rows(reader, start, middle) == []
    assert rows(reader, middle, end) == left


def test_a_topic_that_is_deleted_in_mid_batch(
    broker: Broker, stream: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("barnabas.spark.reading.LOOK_MS", 200)
    create(broker, "vanishes", 3)
    strict, lenient = stream("vanishes"), stream("vanishes", failOnDataLoss="false")
    start = strict.initialOffset()
    parts = strict.partitions(start, {"vanishes": {"0": 3}})
    ask(broker, lambda admin: admin.delete_topics(["vanishes"]))
    with pytest.raises(DataLost, match="topic vanishes is gone, and offsets 0 to 3 of partition 0"):
        list(strict.read(parts[0]))
    assert list(lenient.read(parts[0])) == []
    assert "topic vanishes is gone" in caplog.text


def test_a_time_that_spark_cannot_hold(broker: Broker, stream: Open) -> None:
    configs = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    ask(broker, lambda admin: admin.create_topics([NewTopic("far", 1, 1, configs)]))

    async def sent() -> None:
        async with Producer(*seams(), broker.bootstrap) as producer:
            await (await producer.send("far", b"", timestamp_ms=TIME_MS * 1_000_000))  # nanoseconds

    asyncio.run(sent())
    part = RangePartition(OffsetRange("far", 0, 0, 1))
    with pytest.raises(BadTime, match=r"far-0 has a record whose time .*1700000000000000000.* `columns`"):
        list(stream("far").read(part))
    assert [batch.num_rows for batch in stream("far", columns="value").read(part)] == [1]


@pytest.mark.parametrize(
    ("start", "said"),
    [(0, "silent-0-0 ends at offset 3, and offsets 3 to 5"), (4, "silent-4-0 no longer has all .* 4 to 5")],
)
def test_a_range_that_the_log_does_not_have(
    broker: Broker,
    stream: Open,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    start: int,
    said: str,
) -> None:
    monkeypatch.setattr("barnabas.spark.reading.LOOK_MS", 20)
    topic = f"silent-{start}"
    create(broker, topic, 3)
    options = {"kafkaConsumer.pollTimeoutMs": "1500", "columns": "offset"}
    part = RangePartition(OffsetRange(topic, 0, start, 5))
    with pytest.raises(DataLost, match=said):
        list(stream(topic, **options).read(part))
    left = [batch.to_pydict() for batch in stream(topic, failOnDataLoss="false", **options).read(part)]
    assert left == ([] if start else [{"offset": [0, 1, 2]}])
    assert "ends before offset 4" in caplog.text or "ends at offset 3" in caplog.text


def test_a_range_that_does_not_come(stream: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.spark.reading.LOOK_MS", 20)
    with Broker() as other:
        create(other, "waiting", 3)
        options = {"kafkaConsumer.pollTimeoutMs": "1500", "kafka.default.api.timeout.ms": "500"}
        reader = stream("waiting", **{"kafka.bootstrap.servers": other.bootstrap}, **options)
        batches = iter(reader.read(RangePartition(OffsetRange("waiting", 0, 0, 5))))
        assert next(batches).num_rows == 3
    with pytest.raises(TimedOut, match=r"nothing of waiting-0 came within 1500 ms .* at offset 3, .* at 5"):
        next(batches)
