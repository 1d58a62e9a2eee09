"""Streams as Spark runs them: micro-batches, restarts, new partitions, what is lost, and the group."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, StreamingQueryException

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.spark import lag
from barnabas.spark.driving import seams
from barnabas.testing import Broker
from tests.cli.running import Commands
from tests.support.kafka_tools import KafkaTools
from tests.support.raw_client import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

TIMEOUT_S = 120


class Topic:
    """A topic to fill."""

    def __init__(self, broker: Broker, name: str, partitions: int = 1) -> None:
        self.broker, self.name = broker, name
        self.admin(lambda admin: admin.create_topics([NewTopic(name, partitions, 1)]))

    def admin(self, ask: Callable[[Admin], Any]) -> Any:
        async def work() -> Any:
            async with Admin(*seams(), self.broker.bootstrap) as admin:
                return await ask(admin)

        return asyncio.run(work())

    def committed(self, group: str) -> dict[int, int]:
        """How far the group has read, by partition."""
        found = self.admin(lambda admin: admin.list_group_offsets(group))
        return {each.partition: at.offset for each, at in found.items()}

    def send(self, count: int, partition: int = 0, first: int = 0) -> None:
        async def work() -> None:
            async with Producer(*seams(), self.broker.bootstrap) as producer:
                for n in range(first, first + count):
                    await producer.send(self.name, b"%d" % n, partition=partition)

        asyncio.run(work())


class Streaming:
    """A query that reads what is there, each time it is run, into what it returns."""

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoint: Path, **options: str) -> None:
        reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
        self.frame = reader.options(**{"startingOffsets": "earliest", **options}).load()
        self._checkpoint = checkpoint

    def run(self) -> list[list[tuple[int, int, str]]]:
        """Partition, offset and value of the rows of each micro-batch, in order."""
        batches: list[list[tuple[int, int, str]]] = []

        def take(frame: DataFrame, number: int) -> None:
            rows = frame.selectExpr("partition", "offset", "string(value)").collect()
            batches.append(sorted((row[0], row[1], row[2]) for row in rows))

        self.query = self.start(take)
        assert self.query.awaitTermination(TIMEOUT_S)
        return batches

    def start(self, take: Callable[[DataFrame, int], None]) -> StreamingQuery:
        writer = self.frame.writeStream.foreachBatch(take)
        return writer.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True).start()


def test_micro_batches_of_a_limited_size(spark: SparkSession, shared_broker: Broker, tmp_path: Path) -> None:
    topic = Topic(shared_broker, "stream-limits", 2)
    topic.send(90, 0)
    topic.send(10, 1)
    stream = Streaming(
        spark, shared_broker.bootstrap, tmp_path, subscribe=topic.name, maxOffsetsPerTrigger="40"
    )
    batches = stream.run()
    assert [len(batch) for batch in batches] == [40, 40, 20]
    expected = [(0, n, str(n)) for n in range(90)] + [(1, n, str(n)) for n in range(10)]
    assert sorted(row for batch in batches for row in batch) == expected
    progress = stream.query.recentProgress
    assert [lag(each).total for each in progress if each.numInputRows] == [60, 20, 0]
    assert json.loads(progress[-1].sources[0].endOffset) == {"stream-limits": {"0": 90, "1": 10}}
    assert topic.committed("spark-stream-limits") == {0: 90, 1: 10}  # that of the last batch, too


def test_a_query_goes_on_from_its_checkpoint(
    spark: SparkSession, shared_broker: Broker, tmp_path: Path
) -> None:
    topic = Topic(shared_broker, "stream-goes-on")
    topic.send(3)
    stream = Streaming(spark, shared_broker.bootstrap, tmp_path, subscribe=topic.name)
    assert stream.run() == [[(0, 0, "0"), (0, 1, "1"), (0, 2, "2")]]
    topic.send(1, first=3)
    topic.admin(lambda admin: admin.create_partitions({topic.name: 2}))
    topic.send(2, partition=1, first=10)
    assert stream.run() == [[(0, 3, "3"), (1, 0, "10"), (1, 1, "11")]]
    assert stream.run() == []
    written = (tmp_path / "offsets" / "1").read_text().splitlines()[-1]
    assert json.loads(written) == {"stream-goes-on": {"0": 4, "1": 2}}  # as Spark's own connector has it


def test_a_running_query_from_the_end(spark: SparkSession, shared_broker: Broker, tmp_path: Path) -> None:
    """Nothing of what was there, everything that comes: the default of a stream."""
    topic = Topic(shared_broker, "stream-from-the-end")
    topic.send(3)
    options = {"kafka.bootstrap.servers": shared_broker.bootstrap, "subscribe": topic.name}
    frame = spark.readStream.format("barnabas").options(**options).load()
    rows: list[int] = []

    def take(batch: DataFrame, number: int) -> None:
        rows.extend(row.offset for row in batch.collect())

    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).start()
    try:
        wait_until((tmp_path / "commits" / "0").exists, "it knows where it began", TIMEOUT_S)
        for number in (3, 4):
            topic.send(1, first=number)
            wait_until(lambda: rows[-1:] == [number], "it came", TIMEOUT_S)  # noqa: B023
    finally:
        query.stop()
    assert rows == [3, 4]


def test_a_topic_that_is_made_again_while_a_query_runs(
    spark: SparkSession, shared_broker: Broker, tmp_path: Path
) -> None:
    """Whether the query sees that it is gone, or only that it is another one: all of the new one comes."""
    topic = Topic(shared_broker, "stream-anew")
    topic.send(3)
    options = {"subscribe": topic.name, "failOnDataLoss": "false", "fetchOffset.retryIntervalMs": "10"}
    frame = Streaming(spark, shared_broker.bootstrap, tmp_path, **options).frame
    rows: list[str] = []

    def take(batch: DataFrame, number: int) -> None:
        rows.extend(sorted(row[0] for row in batch.selectExpr("string(value)").collect()))

    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).start()
    try:
        wait_until(lambda: rows == ["0", "1", "2"], "the first one is read", TIMEOUT_S)
        topic.admin(lambda admin: admin.delete_topics([topic.name]))
        Topic(shared_broker, topic.name).send(4, first=10)
        wait_until(lambda: rows[-1] == "13" or not query.isActive, "the second one, too", TIMEOUT_S)
    finally:
        query.stop()
    assert query.exception() is None
    assert rows[3:] == ["10", "11", "12", "13"]


def test_records_that_are_deleted_before_they_are_read(
    spark: SparkSession, shared_broker: Broker, tmp_path: Path
) -> None:
    topic = Topic(shared_broker, "stream-late")
    topic.send(5)
    options = {"subscribe": topic.name}
    assert len(Streaming(spark, shared_broker.bootstrap, tmp_path, **options).run()) == 1
    topic.send(5, first=5)
    topic.admin(lambda admin: admin.delete_records({(topic.name, 0): 8}))
    with pytest.raises(StreamingQueryException, match=r"DataLost: stream-late-0 no longer .* 5 to 10"):
        Streaming(spark, shared_broker.bootstrap, tmp_path, **options).run()
    lenient = Streaming(spark, shared_broker.bootstrap, tmp_path, failOnDataLoss="false", **options)
    assert lenient.run() == [[(0, 8, "8"), (0, 9, "9")]]


def test_only_what_is_committed(spark: SparkSession, shared_broker: Broker, tmp_path: Path) -> None:
    """Offsets of aborted records and of markers are passed over; the end is the last stable offset."""
    topic = Topic(shared_broker, "stream-committed")
    config = ProducerConfig(transactional_id="stream-committed")
    options = {"subscribe": topic.name, "kafka.isolation.level": "read_committed"}
    stream = Streaming(spark, shared_broker.bootstrap, tmp_path, **options)

    async def write() -> list[list[list[tuple[int, int, str]]]]:
        seen = []
        async with Producer(*seams(), shared_broker.bootstrap, config) as producer:
            await producer.init_transactions()
            for number, is_good in enumerate([True, False, True, False]):
                producer.begin_transaction()
                for _ in range(2):
                    await (await producer.send(topic.name, b"%d" % number))
                seen.append(await asyncio.to_thread(stream.run))  # it is still open
                await (producer.commit_transaction() if is_good else producer.abort_transaction())
            seen.append(await asyncio.to_thread(stream.run))
        return seen

    # offsets: 0 1 good, 2 marker, 3 4 bad, 5 marker, 6 7 good, 8 marker, 9 10 bad, 11 marker
    first, second, third, fourth, fifth = asyncio.run(write())
    assert [row for batch in first for row in batch] == []
    assert second == [[(0, 0, "0"), (0, 1, "0")]]
    assert [row for batch in third for row in batch] == []
    assert fourth == [[(0, 6, "2"), (0, 7, "2")]]
    assert [row for batch in fifth for row in batch] == []
    assert topic.committed("spark-stream-committed") == {0: 12}


def test_filters_prune_what_is_read(spark: SparkSession, shared_broker: Broker) -> None:
    topic = Topic(shared_broker, "pruned", 2)
    topic.send(10, 0)
    topic.send(10, 1)

    def load(**options: str) -> DataFrame:
        reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", shared_broker.bootstrap)
        return reader.options(subscribe=topic.name, columns="partition,offset,timestamp", **options).load()

    assert load().filter("partition = 1").rdd.getNumPartitions() == 2
    with pytest.raises(AnalysisException, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        load(pushFilters="true").collect()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        some = load(pushFilters="true").filter("partition = 1 and offset >= 3 and offset < 7 and offset != 5")
        assert sorted(row.offset for row in some.collect()) == [3, 4, 6]
        assert some.rdd.getNumPartitions() == 1
        young = load(pushFilters="true").filter("timestamp > timestamp'2000-01-01' and partition in (0, 7)")
        assert sorted(row.offset for row in young.collect()) == list(range(10))
        assert load(pushFilters="true").filter("timestamp > timestamp'2200-01-01'").collect() == []
        assert load(pushFilters="true").count() == 20
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.java
def test_tools_show_the_lag_of_a_running_query(
    spark: SparkSession, shared_broker: Broker, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    topic = Topic(shared_broker, "stream-lag", 2)
    topic.send(90, 0)
    topic.send(10, 1)
    options = {"subscribe": topic.name, "maxOffsetsPerTrigger": "60", "groupIdPrefix": "watch"}
    frame = Streaming(spark, shared_broker.bootstrap, tmp_path, **options).frame
    is_second, may_go_on = threading.Event(), threading.Event()

    def take(frame: DataFrame, number: int) -> None:
        if number == 1:
            is_second.set()
            assert may_go_on.wait(TIMEOUT_S)

    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).start()
    barnabas = Commands(shared_broker.bootstrap, capfdbinary, tmp_path)
    try:
        group = "watch-stream-lag"
        assert is_second.wait(TIMEOUT_S)
        wait_until(lambda: topic.committed(group) == {0: 54, 1: 6}, "the first batch is seen")
        with KafkaTools() as tools:
            assert lag_by_tool(tools, shared_broker, group) == {0: (54, 90, 36), 1: (6, 10, 4)}
            assert lag_by_command(barnabas, group) == {0: (54, 90, 36), 1: (6, 10, 4)}
            may_go_on.set()
            wait_until(lambda: topic.committed(group) == {0: 90, 1: 10}, "the second, too", TIMEOUT_S)
            assert lag_by_tool(tools, shared_broker, group) == {0: (90, 90, 0), 1: (10, 10, 0)}
            assert lag_by_command(barnabas, group) == {0: (90, 90, 0), 1: (10, 10, 0)}
    finally:
        may_go_on.set()
        query.stop()


def lag_by_tool(tools: KafkaTools, broker: Broker, group: str) -> dict[int, tuple[int, ...]]:
    """Offset, end and lag of each partition, by kafka-consumer-groups."""
    done = tools.run(
        "consumer-groups", "--bootstrap-server", broker.bootstrap, "--describe", "--group", group
    )
    assert done.status == 0, done.err
    rows = [line.split() for line in done.out.splitlines() if line.startswith(group)]
    return {int(row[2]): tuple(map(int, row[3:6])) for row in rows}


def lag_by_command(barnabas: Commands, group: str) -> dict[int, tuple[int, ...]]:
    """The same, by barnabas group describe."""
    (described,) = json.loads(barnabas.ok("group", "describe", group, "--json"))
    return {each["partition"]: (each["offset"], each["end"], each["lag"]) for each in described["offsets"]}
