"""Spark writes by `format("barnabas")`: batches and streams, exactly once or at least."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.fetched import ConsumerRecord
from barnabas.spark.driving import seams
from barnabas.testing import Broker
from tests.support.spark_streams import run as run_stream
from tests.support.spark_topics import committed_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PARTITIONS = 3
TIME_MS = 1_700_000_000_000
Write = Callable[..., None]
_topics = count()


@pytest.fixture
def topic(shared_broker: Broker) -> str:
    """A new topic."""
    return create(shared_broker, f"sink-{next(_topics)}")


def create(broker: Broker, name: str) -> str:
    async def work() -> None:
        async with Admin(*seams(), broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(name, PARTITIONS, 1)])

    asyncio.run(work())
    return name


@pytest.fixture
def write(shared_broker: Broker) -> Write:
    """A batch write; options by name, with underscores for dots."""

    def save(frame: DataFrame, mode: str = "append", **options: Any) -> None:
        writer = frame.write.format("barnabas").option("kafka.bootstrap.servers", shared_broker.bootstrap)
        writer.options(**{name.replace("_", "."): value for name, value in options.items()}).mode(mode).save()

    return save


def read(broker: Broker, topic: str) -> list[ConsumerRecord]:
    return committed_records(broker.bootstrap, topic)


def values(broker: Broker, topic: str) -> list[str]:
    return sorted((record.value or b"").decode() for record in read(broker, topic))


def numbers(start: int, end: int) -> list[str]:
    return sorted(map(str, range(start, end)))


# ---- batches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_every_column_is_written_as_it_is(
    spark: SparkSession, shared_broker: Broker, write: Write, guarantee: str
) -> None:
    topics = [create(shared_broker, f"columns-{guarantee}-{each}") for each in ("even", "odd")]
    frame = spark.range(40).selectExpr(
        f"IF(id % 2 = 0, '{topics[0]}', '{topics[1]}') AS topic",
        "IF(id % 5 = 0, NULL, CONCAT('k', id)) AS key",
        "IF(id % 7 = 0, NULL, ENCODE(CONCAT('v', id), 'utf-8')) AS value",
        f"CAST(id % {PARTITIONS} AS INT) AS partition",
        f"IF(id % 3 = 0, NULL, TIMESTAMP_MILLIS({TIME_MS} + id)) AS timestamp",
        "IF(id % 4 = 0, NULL, ARRAY(NAMED_STRUCT('key', 'h', 'value', ENCODE('x', 'utf-8')))) AS headers",
        "id AS offset",  # not written, as many others
    )
    write(frame.coalesce(1), deliveryGuarantee=guarantee)
    for parity, name in enumerate(topics):
        sent = [n for n in range(40) if n % 2 == parity]
        found = read(shared_broker, name)
        expected = sorted(sent, key=lambda n: (n % PARTITIONS, n))
        assert [record.partition for record in found] == [n % PARTITIONS for n in expected]
        for n, record in zip(expected, found, strict=True):
            assert record.key == (None if n % 5 == 0 else b"k%d" % n)
            assert record.value == (None if n % 7 == 0 else b"v%d" % n)
            assert list(record.headers) == ([] if n % 4 == 0 else [("h", b"x")])
            assert (record.timestamp_ms == TIME_MS + n) == (n % 3 != 0)


def test_a_topic_that_was_read_can_be_written(
    spark: SparkSession, shared_broker: Broker, topic: str, write: Write
) -> None:
    write(spark.range(100).selectExpr("STRING(id) AS value", "STRING(id) AS key"), topic=topic)
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", shared_broker.bootstrap)
    copy = create(shared_broker, f"{topic}-copy")
    write(reader.option("subscribe", topic).option("includeHeaders", "true").load(), topic=copy)
    before, after = read(shared_broker, topic), read(shared_broker, copy)
    assert len(after) == 100
    assert [each[3:6] for each in after] == [each[3:6] for each in before]
    assert [each.partition for each in after] == [each.partition for each in before]


def test_a_named_write_is_done_once(
    spark: SparkSession, shared_broker: Broker, topic: str, write: Write
) -> None:
    frame = spark.range(10).selectExpr("STRING(id) AS value").repartition(2)
    for version in (1, 1, 2, 1):
        write(frame, topic=topic, txnAppId=f"job-{topic}", txnVersion=version)
    write(frame, topic=topic, txnAppId=f"another-{topic}", txnVersion=1)
    assert values(shared_broker, topic) == sorted(3 * numbers(0, 10))


def test_a_task_that_fails_leaves_nothing(
    spark: SparkSession, shared_broker: Broker, topic: str, write: Write
) -> None:
    from pyspark.errors import PySparkException

    frame = spark.range(0, 1000, 1, 2).selectExpr(
        "IF(id = 999, RAISE_ERROR('poison'), STRING(id)) AS value", "STRING(id) AS key"
    )
    with pytest.raises(PySparkException, match="poison"):
        write(frame, topic=topic)
    assert values(shared_broker, topic) == []


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["id AS value"], {}, "column value is bigint and must be string or binary: cast it"),
        (
            ["'' AS value", "MAP('a', '') AS headers"],
            {},
            r"column headers is map<.* must be array<struct<key",
        ),
        (["'' AS value"], {"kafka_retries": "1"}, "kafka.retries means nothing to a write; there are: kafka"),
        (
            ["'' AS value"],
            {"mode": "overwrite"},
            r'a topic cannot be overwritten: write with mode\("append"\)',
        ),
    ],
)
def test_what_will_not_do_is_said(
    spark: SparkSession, write: Write, columns: list[str], options: dict[str, str | None], said: str
) -> None:
    from pyspark.errors import PySparkException

    given = {name: value for name, value in {"topic": "any", **options}.items() if value is not None}
    with pytest.raises(PySparkException, match=said):
        write(spark.range(1).selectExpr(*columns), **given)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("STRING(NULL) AS topic", "1 rows have no topic"),
        ("'sink-nowhere' AS topic", "UnknownTopic: .*'sink-nowhere'"),
        ("'sink-some' AS topic, 3 AS partition", "NoSuchPartition: sink-some has 3 partitions, no number 3"),
    ],
)
def test_rows_that_cannot_be_written_are_said(
    spark: SparkSession, shared_broker: Broker, write: Write, columns: str, said: str
) -> None:
    from pyspark.errors import PySparkException

    if "partition" in columns:
        create(shared_broker, "sink-some")
    with pytest.raises(PySparkException, match=said):
        write(spark.sql(f"SELECT '' AS value, {columns}"), kafka_max_block_ms=200)


# ---- streams ----------------------------------------------------------------------------------------------


class Pipe:
    """A stream from one topic to another, 60 records a batch, until all that is there is written."""

    def __init__(self, spark: SparkSession, broker: Broker, source: str, target: str, place: Path) -> None:
        self._spark, self._place = spark, place
        self._bootstrap = ("kafka.bootstrap.servers", broker.bootstrap)
        self.source, self.target = source, target

    def read(self) -> DataFrame:
        reader = self._spark.readStream.format("barnabas").option(*self._bootstrap)
        reader = reader.option("subscribe", self.source).option("startingOffsets", "earliest")
        reader = reader.option("maxOffsetsPerTrigger", "60").option("mirrorOffsets", "false")
        return reader.load().select("key", "value")

    def run(self, sink: str = "barnabas", tasks: int | None = None, **options: str) -> None:
        frame = self.read() if tasks is None else self.read().repartition(tasks)
        writer = frame.writeStream.format(sink).option(*self._bootstrap).option("topic", self.target)
        run_stream(writer.options(**options), self._place / "checkpoint")


@pytest.fixture
def pipe(spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path) -> Pipe:
    return Pipe(spark, shared_broker, topic, create(shared_broker, f"{topic}-out"), tmp_path)


def send(spark: SparkSession, write: Write, topic: str, start: int, end: int) -> None:
    frame = spark.range(start, end, 1, 1).selectExpr("STRING(id) AS key", "STRING(id) AS value")
    write(frame, topic=topic, deliveryGuarantee="at-least-once")


def test_topic_to_topic(spark: SparkSession, shared_broker: Broker, write: Write, pipe: Pipe) -> None:
    for start, guarantee in ((0, "exactly-once"), (100, "at-least-once"), (200, "exactly-once")):
        send(spark, write, pipe.source, start, start + 100)
        pipe.run(deliveryGuarantee=guarantee)
        assert values(shared_broker, pipe.target) == numbers(0, start + 100)
    order = [record.value for record in read(shared_broker, pipe.target)]
    assert order == [record.value for record in read(shared_broker, pipe.source)]


@pytest.mark.parametrize("failing", ["compared", "decided"])
def test_a_stream_that_fails_is_started_again(
    spark: SparkSession, shared_broker: Broker, write: Write, pipe: Pipe, failing: str
) -> None:
    """One of its batches fails in the driver; then it runs with other tasks."""
    from pyspark.errors import StreamingQueryException

    sink = register_failing_sink(spark, failing)
    send(spark, write, pipe.source, 0, 40)
    pipe.run(tasks=1)
    send(spark, write, pipe.source, 40, 130)
    with pytest.raises(StreamingQueryException, match=f"fails as it was told to at {failing}"):
        pipe.run(sink, tasks=2)
    pipe.run(tasks=3)
    assert values(shared_broker, pipe.target) == numbers(0, 130)


def register_failing_sink(spark: SparkSession, failing: str) -> str:
    """A sink whose driver fails when it comes to that step."""
    from barnabas.spark.sink import StreamWriter, stream_writer
    from barnabas.spark.source import BarnabasDataSource

    name = f"failing_{failing.replace(' ', '_')}"

    class FailingWriter(StreamWriter):  # in a function: it goes to Spark's processes by value
        def step(self, step: str) -> None:
            if step == failing:
                raise OSError(f"fails as it was told to at {failing}")

    class FailingSource(BarnabasDataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            writer = stream_writer(self.options, schema)
            writer.__class__ = FailingWriter
            return writer

    spark.dataSource.register(FailingSource)
    return name


def test_a_checkpoint_that_was_put_back(
    spark: SparkSession, shared_broker: Broker, write: Write, pipe: Pipe, tmp_path: Path
) -> None:
    import shutil

    from pyspark.errors import StreamingQueryException

    send(spark, write, pipe.source, 0, 60)
    pipe.run()
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    send(spark, write, pipe.source, 60, 180)
    pipe.run()
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "copy", tmp_path / "checkpoint")
    with pytest.raises(
        StreamingQueryException, match=r"this is batch \d of query .* its batch \d is written already"
    ):
        pipe.run()
    assert values(shared_broker, pipe.target) == numbers(0, 180)


def test_a_complete_result_is_written_every_time(
    spark: SparkSession, shared_broker: Broker, write: Write, pipe: Pipe, tmp_path: Path
) -> None:
    send(spark, write, pipe.source, 0, 90)
    counted = pipe.read().groupBy().count().selectExpr("STRING(count) AS value", f"'{pipe.target}' AS topic")
    writer = counted.writeStream.format("barnabas").outputMode("complete")
    run_stream(writer.option("kafka.bootstrap.servers", shared_broker.bootstrap), tmp_path / "complete")
    found = values(shared_broker, pipe.target)
    assert found[-1] == "90"
    assert len(found) > 1


def test_named_writes_of_foreach_batch(
    spark: SparkSession, shared_broker: Broker, write: Write, pipe: Pipe, tmp_path: Path
) -> None:
    """What was written before the query failed is written by nobody again, to whichever topic."""
    from pyspark.errors import StreamingQueryException

    is_failing = True
    other = create(shared_broker, f"{pipe.target}-other")

    def write_batch(frame: DataFrame, batch: int) -> None:
        name = {"txnAppId": f"each-{pipe.target}", "txnVersion": batch}
        write(frame, topic=pipe.target, **name)
        if is_failing and batch == 1:
            raise OSError("after the first write")
        write(frame, topic=other, **name)

    def run() -> None:
        run_stream(pipe.read().writeStream.foreachBatch(write_batch), tmp_path / "each")

    send(spark, write, pipe.source, 0, 90)
    with pytest.raises(StreamingQueryException, match="after the first write"):
        run()
    is_failing = False
    run()
    assert values(shared_broker, pipe.target) == numbers(0, 90)
    assert values(shared_broker, other) == numbers(0, 90)
