"""Spark reads what was sent, by `format("barnabas")`, which it finds without being told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.log.partition import PartitionLog
from barnabas.records.compression import Codec
from barnabas.records.record import Headers
from barnabas.spark.driving import seams
from barnabas.testing import Broker
from tests.support.raw_client import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TIME_MS = 1_700_000_000_000
Read = Callable[..., "DataFrame"]


class Sent(NamedTuple):
    """A record as it is sent."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


@pytest.fixture
def read(spark: SparkSession, shared_broker: Broker) -> Read:
    """A read of a topic; options by name."""

    def load(topic: str, **options: str) -> DataFrame:
        reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", shared_broker.bootstrap)
        return reader.option("subscribe", topic).options(**options).load()

    return load


def fill(
    broker: Broker, topic: str, records: list[Sent], *, codec: Codec = Codec.NONE, **configs: str
) -> None:
    """Create a topic with these records; underscores in the names of settings stand for dots."""

    async def work() -> None:
        partitions = 1 + max((each.partition for each in records), default=0)
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        async with Admin(*seams(), broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, partitions, 1, dotted)])
        config = ProducerConfig(compression=codec, batch_bytes=1500)
        async with Producer(*seams(), broker.bootstrap, config) as producer:
            for each in records:
                await producer.send(
                    topic, each.value, each.key, each.partition, each.headers, each.timestamp_ms
                )

    asyncio.run(work())


def plain(count: int) -> list[Sent]:
    return [Sent(0, b"%d" % (n % 10), b"value %d" % n, (), TIME_MS + n) for n in range(count)]


def various(count: int) -> list[Sent]:
    """Records of every kind: with and without keys, values, headers; some of them large."""
    made = []
    for n in range(count):
        key = None if n % 7 == 0 else b"key %d" % (n % 100)
        value = (
            None if n % 11 == 0 else b"" if n % 13 == 0 else b"value %d " % n * (40 if n % 500 == 0 else 1)
        )
        headers: Headers = () if n % 3 else (("número", b"%d" % n), ("twice", None), ("twice", b""))
        made.append(Sent(n % 4, key, value, headers, TIME_MS + n))
    return made


def test_the_schema_is_that_of_sparks_own_connector(shared_broker: Broker, read: Read) -> None:
    from pyspark.sql.types import StructType

    columns = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
    headers = "headers array<struct<key: string, value: binary>>"
    assert read("any").schema == StructType.fromDDL(f"{columns}, timestampType int")
    with_headers = StructType.fromDDL(f"{columns}, timestampType int, {headers}")
    assert read("any", includeHeaders="true").schema == with_headers
    some = read("any", columns="offset, value").schema
    assert some == StructType.fromDDL("offset bigint, value binary")


def test_a_topic_without_records_is_a_table_without_rows(shared_broker: Broker, read: Read) -> None:
    fill(shared_broker, "empty", [])
    assert read("empty").collect() == []


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_every_record_comes_as_it_was_sent(shared_broker: Broker, read: Read, codec: Codec) -> None:
    sent = various(20_000)
    topic = f"whole-{codec.name}"
    fill(shared_broker, topic, sent, codec=codec)
    frame = read(topic, includeHeaders="true", minPartitions="6")
    assert frame.rdd.getNumPartitions() == 6
    rows = frame.selectExpr("*", "unix_millis(timestamp) as ms").collect()
    assert {(row.topic, row.timestampType) for row in rows} == {(topic, 0)}
    rows.sort(key=lambda row: (row.partition, row.offset))
    expected: list[Any] = []
    for partition in range(4):
        own = [each for each in sent if each.partition == partition]
        expected += [(offset, *each) for offset, each in enumerate(own)]
    assert len(rows) == len(expected)
    for row, (offset, *each) in zip(rows, expected, strict=True):
        headers = None if row.headers is None else tuple((h.key, _bytes(h.value)) for h in row.headers)
        found = [row.offset, row.partition, _bytes(row.key), _bytes(row.value), headers, row.ms]
        assert found == [offset, *each[:3], each[3] or None, each[4]]


def _bytes(value: bytearray | bytes | None) -> bytes | None:
    return None if value is None else bytes(value)


def test_ranges(shared_broker: Broker, read: Read) -> None:
    fill(shared_broker, "ranges", plain(1000))
    frame = read(
        "ranges",
        startingOffsets=json.dumps({"ranges": {"0": 123}}),
        endingOffsets=json.dumps({"ranges": {"0": 877}}),
        maxRecordsPerPartition="200",
        columns="offset",
    )
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in frame.collect()) == list(range(123, 877))
    timed = read("ranges", startingTimestamp=str(TIME_MS + 10), endingTimestamp=str(TIME_MS + 20))
    assert sorted(row.offset for row in timed.collect()) == list(range(10, 20))
    assert len(read("ranges").limit(3).collect()) == 3  # the reader is closed in mid-range


def test_a_compacted_topic_has_gaps(shared_broker: Broker, read: Read) -> None:
    configs = {"cleanup_policy": "compact", "segment_bytes": "1048576"}
    fill(shared_broker, "compacted", plain(995), **configs)

    async def roll() -> PartitionLog:
        replicas = shared_broker.node.broker.replicas
        log = (await replicas.leader(replicas.topic("compacted", b"", by_id=False), 0)).log
        await log.roll()
        return log

    log = shared_broker.run(roll())
    wait_until(lambda: log.cleaned_offset == 995, "it is compacted")
    left = [*range(985, 995)]
    assert sorted(row.offset for row in read("compacted", columns="offset").collect()) == left
    pieces = read("compacted", columns="offset", minPartitions="7")
    assert sorted(row.offset for row in pieces.collect()) == left
    early = read("compacted", endingOffsets='{"compacted": {"0": 985}}')
    assert early.collect() == []


def test_the_time_of_appending(shared_broker: Broker, read: Read) -> None:
    fill(shared_broker, "append", plain(3), message_timestamp_type="LogAppendTime")
    rows = read("append").selectExpr("timestampType", "unix_millis(timestamp) as ms").collect()
    assert [row.timestampType for row in rows] == [1, 1, 1]
    assert all(row.ms > TIME_MS + 1000 for row in rows)


def test_sql_finds_it_by_name(spark: SparkSession, shared_broker: Broker) -> None:
    fill(shared_broker, "by-name", plain(100))
    spark.sql(
        f"""CREATE OR REPLACE TEMPORARY VIEW by_name USING barnabas
        OPTIONS (kafka.bootstrap.servers '{shared_broker.bootstrap}', subscribe 'by-name')"""
    )
    counted = spark.sql("SELECT string(key), count(*) AS n FROM by_name GROUP BY key ORDER BY key").collect()
    assert [tuple(row) for row in counted] == [(str(n), 10) for n in range(10)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingoffset": "earliest"}, "OptionError: unknown option startingoffset; there are: "),
        ({"kafka.ssl.key": "g"}, "kafka.ssl.key means nothing here yet"),
        ({"endingOffsets": '{"errors": {"0": 4}}'}, "errors-0 has offsets 0 to 3, and 0 to 4 were asked for"),
        ({"subscribe": "nowhere"}, "UnknownTopic: .*'nowhere'"),
    ],
)
def test_what_will_not_do_is_said(
    shared_broker: Broker, read: Read, options: dict[str, str], said: str
) -> None:
    from pyspark.errors import AnalysisException

    if said.startswith("OptionError"):
        fill(shared_broker, "errors", plain(3))
    topic = options.pop("subscribe", "errors")
    with pytest.raises(AnalysisException, match=said):
        read(topic, **options).collect()


def test_the_schema_cannot_be_another(spark: SparkSession, shared_broker: Broker) -> None:
    from pyspark.errors import AnalysisException

    reader = spark.read.format("barnabas").schema("value string").option("subscribe", "errors")
    with pytest.raises(AnalysisException, match="the schema is fixed"):
        reader.option("kafka.bootstrap.servers", shared_broker.bootstrap).load().collect()
