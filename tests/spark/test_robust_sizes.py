"""A great deal of everything: bytes, records of one partition, partitions, bytes of one record."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from barnabas.client.producer import ProducerConfig
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.records.compression import Codec
from barnabas.testing import Broker
from tests.support.proxy import Proxy
from tests.support.spark_streams import run as run_stream
from tests.support.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MIB = 1024 * 1024


@pytest.fixture
def topics(spark: SparkSession, shared_broker: Broker) -> Topics:
    return Topics(spark, shared_broker.bootstrap)


# ---- more than memory -------------------------------------------------------------------------------------

VALUE_BYTES = 16 * 1024
DATA_BYTES = 1024 * MIB  # of one partition; the JVM has a heap of half that
WORKER_BYTES = 450 * MIB


def test_more_than_memory(topics: Topics) -> None:
    """A partition twice as large as the JVM's heap is read and written by processes that stay small."""
    source, target = topics.create("more-than-memory"), topics.create("more-than-memory-copy")
    count = DATA_BYTES // VALUE_BYTES
    piece = pa.table({"value": pa.array([bytes(VALUE_BYTES)] * 1024, pa.binary())})
    config = ProducerConfig(
        compression=Codec.ZSTD, max_request_bytes=8 * MIB
    )  # the broker's memory is spared
    topics.send_table(source, pa.concat_tables([piece] * (count // piece.num_rows)), config)
    script = Path(__file__).parents[1] / "support" / "spark_small.py"
    command = [sys.executable, str(script), topics.bootstrap, source, target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    peaks_bytes = json.loads(done.stdout.splitlines()[-1])
    assert len(peaks_bytes) >= 2  # one that reads and one that writes
    assert max(peaks_bytes) < WORKER_BYTES
    copied = topics.read(target, columns="offset")
    assert copied.selectExpr("COUNT(*)", "MAX(offset)").first() == (count, count - 1)


# ---- one partition that has most of it --------------------------------------------------------------------

SKEWED = {0: 40, 1: 4000, 2: 40}


@pytest.fixture
def skewed(topics: Topics, request: pytest.FixtureRequest) -> str:
    name = topics.create(f"skewed-{request.node.name.split('_')[-1]}", len(SKEWED))
    for partition, count in SKEWED.items():
        topics.send(name, [b"%d" % n for n in range(count)], partition)
    return name


def test_a_large_partition_is_cut(topics: Topics, skewed: str) -> None:
    for options in ({"minPartitions": "10"}, {"maxRecordsPerPartition": "500"}):
        frame = topics.read(skewed, **options)
        by_task = frame.selectExpr("SPARK_PARTITION_ID() AS task", "partition", "offset", "STRING(value)")
        rows = by_task.collect()
        assert frame.rdd.getNumPartitions() == 10
        assert max(Counter(row.task for row in rows).values()) <= 500
        assert sorted(row[1:] for row in rows) == [
            (partition, n, str(n)) for partition, count in sorted(SKEWED.items()) for n in range(count)
        ]


def test_a_large_partition_does_not_starve_the_others(topics: Topics, skewed: str, tmp_path: Path) -> None:
    batches: list[dict[int, int]] = []

    def take(frame: object, number: int) -> None:
        batches.append({row.partition: row["count"] for row in frame.groupBy("partition").count().collect()})  # type: ignore[attr-defined]

    frame = topics.stream(skewed, maxOffsetsPerTrigger="1020", mirrorOffsets="false")
    run_stream(frame.writeStream.foreachBatch(take), tmp_path)
    assert batches == [{0: 10, 1: 1000, 2: 10}] * 4


# ---- a thousand partitions --------------------------------------------------------------------------------

MANY = 1000


def test_a_thousand_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """What is asked of the broker does not grow with the partitions, but for the reading itself."""
    rows = spark.range(2 * MANY).selectExpr("STRING(id) AS value", f"INT(id % {MANY}) AS partition")
    with Proxy() as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"}
        with Broker(settings=settings) as broker:
            proxy.leads_to(broker.port)
            topics = Topics(spark, proxy.bootstrap)
            name = topics.create("thousand", MANY)
            proxy.requests.clear()
            topics.write(rows.coalesce(1), name, deliveryGuarantee="at-least-once")
            assert proxy.requests[ProduceRequest.__key__] < 100
            proxy.requests.clear()
            frame = topics.read(name)
            assert frame.rdd.getNumPartitions() == MANY
            assert sum(proxy.requests.values()) <= 12
            newest = {str(partition): 2 for partition in range(MANY)}
            oldest = json.dumps({name: {**newest, "7": 1, "999": 0}})
            some = topics.read(name, startingOffsets=oldest)
            assert sorted(int(row.value) for row in some.collect()) == [999, 1007, 1999]
            proxy.requests.clear()
            stream = topics.stream(name, startingOffsets=oldest, maxOffsetsPerTrigger="2")
            query = run_stream(stream.writeStream.format("noop"), tmp_path)
            assert sum(each.numInputRows for each in query.recentProgress) == 3
            asked = proxy.requests
            assert asked[MetadataRequest.__key__] + asked[ListOffsetsRequest.__key__] < 40
            assert asked[OffsetCommitRequest.__key__] <= 4
            assert asked[FetchRequest.__key__] < 20


# ---- large records ----------------------------------------------------------------------------------------

LARGE = 10 * MIB


def test_records_of_ten_megabytes(spark: SparkSession, topics: Topics) -> None:
    source, target = (topics.create(name, max_message_bytes=str(12 * MIB)) for name in ("large", "larger"))
    rows = spark.range(0, 3, 1, 1).selectExpr(f"REPEAT(STRING(id), {LARGE}) AS value")
    topics.write(rows, source, kafka_max_request_size=str(12 * MIB))
    topics.write(
        topics.read(source), target, kafka_max_request_size=str(12 * MIB), deliveryGuarantee="at-least-once"
    )
    assert [each.value for each in topics.records(target)] == [b"%d" % n * LARGE for n in range(3)]


def test_records_that_are_too_large(spark: SparkSession, topics: Topics) -> None:
    small = topics.create("small-records")
    rows = spark.range(1).selectExpr(f"REPEAT('x', {LARGE}) AS value")
    for guarantee in ("exactly-once", "at-least-once"):
        with pytest.raises(PySparkException, match=r"RecordTooLarge: .*max\.request\.size"):
            topics.write(rows, small, deliveryGuarantee=guarantee)
        with pytest.raises(PySparkException, match=r"MESSAGE_TOO_LARGE.* raise max\.message\.bytes"):
            topics.write(rows, small, deliveryGuarantee=guarantee, kafka_max_request_size=str(12 * MIB))
    assert topics.records(small) == []
