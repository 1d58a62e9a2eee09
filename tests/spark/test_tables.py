"""A topic as a table: the latest record of each key, without those that were taken away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.producer import Producer
from barnabas.spark import ktable, ktable_changes
from barnabas.spark.driving import seams
from barnabas.testing import Broker
from tests.support.spark_streams import Files, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "key string, value string, partition int, offset long, timestamp long"


def rows(spark: SparkSession, *given: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(given), SCHEMA).repartition(3)


def test_the_highest_offset_counts_and_not_the_time(spark: SparkSession) -> None:
    df = rows(spark, ("a", "old", 0, 1, 900), ("a", "new", 0, 2, 100), ("b", "only", 1, 0, 1))
    found = ktable(df)
    assert found.columns == df.columns
    assert sorted(map(tuple, found.collect())) == [("a", "new", 0, 2, 100), ("b", "only", 1, 0, 1)]


def test_a_tombstone_takes_the_key_away_until_it_comes_again(spark: SparkSession) -> None:
    df = rows(
        spark,
        *(("gone", "1", 0, 1, 1), ("gone", None, 0, 2, 1)),
        *(("back", "1", 0, 3, 1), ("back", None, 0, 4, 1), ("back", "2", 0, 5, 1)),
        (None, "no key", 0, 6, 1),
        ("", "", 0, 7, 1),
    )
    assert sorted(row.key for row in ktable(df).collect()) == ["", "back"]
    changes = {row.key: (row.value, row.op) for row in ktable_changes(df).collect()}
    assert changes == {"gone": (None, "delete"), "back": ("2", "upsert"), "": ("", "upsert")}


def test_a_key_in_two_partitions_needs_an_order(spark: SparkSession) -> None:
    df = rows(spark, ("a", "before", 3, 900, 10), ("a", "after", 1, 5, 20))
    with pytest.raises(Exception, match="the key a is in the partitions 1 and 3: which is later"):
        ktable(df).collect()
    (found,) = ktable(df, order=("timestamp", "partition", "offset")).collect()
    assert found.value == "after"


def test_a_key_in_two_topics_needs_an_order(spark: SparkSession) -> None:
    df = rows(spark, ("a", "first", 0, 900, 10), ("a", "second", 0, 5, 20))
    topics = df.selectExpr("*", "if(value = 'first', 'orders', 'returns') topic")
    with pytest.raises(Exception, match="the key a is in the partitions orders-0 and returns-0: which is"):
        ktable(topics).collect()
    (found,) = ktable(topics, order=("timestamp", "partition", "offset")).collect()
    assert found.value == "second"
    (found,) = ktable(topics.where("topic = 'orders'")).collect()
    assert found.value == "first"


def test_keys_of_several_columns_and_a_value_of_another_name(spark: SparkSession) -> None:
    df = rows(spark, ("a", "x", 0, 1, 1), ("a", "y", 0, 2, 1), ("a", "x", 0, 3, 2)).selectExpr(
        "key", "value AS half", "if(timestamp = 1, 'there', null) data", "partition", "offset"
    )
    found = ktable(df, ("key", "half"), value="data").select("key", "half", "data").collect()
    assert [tuple(row) for row in found] == [("a", "y", "there")]
    with pytest.raises(ValueError, match="ktable: there is no column value, only key, half"):
        ktable(df)
    with pytest.raises(ValueError, match="a column 'op' already"):
        ktable(ktable_changes(df, value="data"), value="data")


def test_a_stream_tells_of_every_key_that_changed(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path / "in")
    files.put([record("a", "1", 0), record("b", "1", 1), record("a", "2", 2)])
    files.put([record("a", None, 3)])
    files.put([record("c", "1", 4), record("b", "2", 5)])
    batches: list[list[tuple[str, ...]]] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        found = batch.select("key", "op", "value").collect()
        batches.append(sorted(tuple(row) for row in found))

    stream = ktable_changes(files.stream(SCHEMA)).writeStream.outputMode("update").foreachBatch(keep)
    run(stream, tmp_path / "checkpoint")
    assert batches == [
        [("a", "upsert", "2"), ("b", "upsert", "1")],
        [("a", "delete", None)],
        [("b", "upsert", "2"), ("c", "upsert", "1")],
    ]
    whole = ktable(files.stream(SCHEMA)).writeStream.outputMode("complete").format("memory")
    run(whole.queryName("whole_table"), tmp_path / "other")
    assert sorted((row.key, row.value) for row in spark.table("whole_table").collect()) == [
        ("b", "2"),
        ("c", "1"),
    ]


def record(key: str, value: str | None, offset: int) -> dict[str, Any]:
    return {"key": key, "value": value, "partition": 0, "offset": offset, "timestamp": offset}


def test_a_compacted_topic(spark: SparkSession, shared_broker: Broker) -> None:
    sent: dict[bytes, bytes | None] = {}

    async def fill() -> None:
        async with Admin(*seams(), shared_broker.bootstrap) as admin:
            await admin.create_topics([NewTopic("towns", 3, 1, {"cleanup.policy": "compact"})])
        async with Producer(*seams(), shared_broker.bootstrap) as producer:
            for number in range(500):
                key = b"%d" % (number * 7 % 100)
                sent[key] = None if number % 9 == 0 else b"value %d" % number
                await producer.send("towns", sent[key], key)

    asyncio.run(fill())
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", shared_broker.bootstrap)
    found = {bytes(row.key): bytes(row.value) for row in ktable(reader.load(subscribe="towns")).collect()}
    assert found == {key: value for key, value in sent.items() if value is not None}
