"""Bad rows become dead letters, with the bytes they came with and the place they stood; no row is lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.producer import Producer
from barnabas.spark import dead_letters, decode_json, encode_json, good, reject, routed, with_dead_letters
from barnabas.spark.driving import seams
from barnabas.spark.routing import RoutingError
from barnabas.testing import Broker
from tests.support.clients import Received, confluent_consumer, confluent_next

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

SOURCE = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)
TIME = datetime(2024, 3, 31, 2, 30, 0, 123000, tzinfo=UTC)
TIME_MS = b"1711852200123"
RECORDS: list[tuple[Any, ...]] = [
    (bytearray(b"a"), bytearray(b'{"id": 1}'), "orders", 0, 10, TIME, 0, None),
    (
        None,
        bytearray(b"poison \xff"),
        "orders",
        1,
        11,
        TIME,
        0,
        [("trace", bytearray(b"\0x")), ("none", None)],
    ),
    (bytearray(b"c"), bytearray(b'{"id": -3}'), "orders", 2, 12, TIME, 0, [("trace", bytearray(b"y"))]),
    (bytearray(b"d"), None, "orders", 3, 13, TIME, 0, None),
]


@pytest.fixture
def decoded(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(RECORDS, SOURCE).transform(decode_json, "id int NOT NULL")


def headers(row: Row) -> list[tuple[str, bytes | None]]:
    return [(each.key, None if each.value is None else bytes(each.value)) for each in row.headers]


def where(error: bytes, partition: bytes, offset: bytes) -> list[tuple[str, bytes]]:
    return [
        ("error", error),
        ("topic", b"orders"),
        ("partition", partition),
        ("offset", offset),
        ("timestamp", TIME_MS),
    ]


def test_a_dead_letter_is_the_record_with_its_story(decoded: DataFrame) -> None:
    letters = dead_letters(decoded)
    assert letters.columns == ["topic", "key", "value", "headers"]
    (row,) = letters.collect()
    assert (row.topic, row.key, bytes(row.value)) == ("orders.dlq", None, b"poison \xff")
    assert headers(row) == [("trace", b"\0x"), ("none", None), *where(b"not UTF-8", b"1", b"11")]


def test_good_and_dead_letters_part_the_rows_in_two(decoded: DataFrame) -> None:
    kept = good(decoded)
    assert "error" not in kept.columns
    assert [(row.offset, row.data and row.data.id) for row in kept.orderBy("offset").collect()] == [
        (10, 1),
        (12, -3),
        (13, None),
    ]


def test_a_rule_of_ones_own(decoded: DataFrame) -> None:
    ruled = decoded.transform(reject, "data.id < 0", "id is negative").transform(reject, "true", "second")
    rows = ruled.orderBy("offset").collect()
    assert [row.error for row in rows] == ["second", "not UTF-8", "id is negative", "second"]
    letters = dead_letters(ruled.filter("offset = 12"), suffix="-bad").collect()
    assert [row.topic for row in letters] == ["orders-bad"]
    assert headers(letters[0]) == [("trace", b"y"), *where(b"id is negative", b"2", b"12")]


def test_a_rule_may_be_columns_and_stand_alone(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    df = spark.createDataFrame([(1,), (None,), (-1,)], "id int")
    rows = reject(df, f.col("id") < 0, f.concat(f.lit("id is "), "id")).collect()
    assert [row.error for row in rows] == [None, None, "id is -1"]
    nameless = reject(df, f.col("id").isNull(), f.concat(f.lit("id is "), "id")).collect()
    assert [row.error for row in nameless] == [None, "rejected", None]


def test_both_in_one_write(decoded: DataFrame) -> None:
    out = good(decoded).transform(encode_json)
    rows = with_dead_letters(out, decoded, topic="clean").collect()
    assert sorted((row.topic, row.value and bytes(row.value)) for row in rows if row.value is not None) == [
        ("clean", b'{"id":-3}'),
        ("clean", b'{"id":1}'),
        ("orders.dlq", b"poison \xff"),
    ]
    assert [(row.topic, bytes(row.key)) for row in rows if row.value is None] == [("clean", b"d")]


def test_both_in_one_pass(decoded: DataFrame) -> None:
    together = decoded.transform(reject, "data.id < 0", "negative").transform(encode_json)
    rows = routed(together, "clean").collect()
    assert [(row.topic, row.value and bytes(row.value)) for row in rows] == [
        ("clean", b'{"id":1}'),
        ("orders.dlq", b"poison \xff"),
        ("orders.dlq", b'{"id": -3}'),
        ("clean", None),
    ]
    assert [row.headers and headers(row)[-5:] for row in rows] == [
        None,
        where(b"not UTF-8", b"1", b"11"),
        where(b"negative", b"2", b"12"),
        None,
    ]


def test_few_columns_are_enough(spark: SparkSession) -> None:
    df = spark.createDataFrame([("t", bytearray(b"x"), "why")], "topic string, value binary, error string")
    (row,) = dead_letters(df).collect()
    assert (row.topic, row.key, headers(row)) == ("t.dlq", None, [("error", b"why"), ("topic", b"t")])


def test_what_is_missing_is_named(spark: SparkSession) -> None:
    df = spark.createDataFrame([(bytearray(b"x"),)], "value binary")
    with pytest.raises(RoutingError, match="no column error, topic among value"):
        dead_letters(df)
    with pytest.raises(RoutingError, match="no column error"):
        good(df)


def test_a_stream_is_routed_as_a_batch_is(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame(RECORDS, SOURCE).coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(SOURCE).parquet(str(tmp_path / "in")).transform(decode_json, "id int")
    query = (
        routed(stream.transform(encode_json), "clean")
        .writeStream.format("memory")
        .queryName("routed_stream")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    rows = spark.table("routed_stream").collect()
    assert sorted(row.topic for row in rows) == ["clean", "clean", "clean", "orders.dlq"]


def send_orders(broker: Broker) -> None:
    """Three records, one of them poison with a header of its own, and the topics that they may go to."""

    async def work() -> None:
        async with Admin(*seams(), broker.bootstrap) as admin:
            names = ("dlq-orders", "dlq-orders.dlq", "dlq-clean")
            await admin.create_topics([NewTopic(name, 1, 1) for name in names])
        async with Producer(*seams(), broker.bootstrap) as producer:
            await producer.send("dlq-orders", b'{"id": 1}', b"a", timestamp_ms=5)
            await producer.send(
                "dlq-orders", b"poison \xff", b"b", headers=(("trace", b"\0x"),), timestamp_ms=6
            )
            await producer.send("dlq-orders", b'{"id": -1}', None, timestamp_ms=7)

    asyncio.run(work())


def consumed(broker: Broker, topic: str, count: int) -> list[Received]:
    """As a stranger's client reads them."""
    with confluent_consumer(broker.bootstrap, **{"isolation.level": "read_committed"}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [confluent_next(consumer) for _ in range(count)]


def test_dead_letters_are_written_with_the_rest_and_read_by_any_client(
    spark: SparkSession, shared_broker: Broker, tmp_path: Path
) -> None:
    send_orders(shared_broker)
    server = {"kafka.bootstrap.servers": shared_broker.bootstrap}
    orders = (
        spark.readStream.format("barnabas")
        .options(**server, subscribe="dlq-orders", startingOffsets="earliest", includeHeaders="true")
        .load()
        .transform(decode_json, "id int NOT NULL")
        .transform(reject, "data.id < 0", "id is negative")
    )
    query = (
        routed(orders.transform(encode_json), "dlq-clean")
        .writeStream.format("barnabas")
        .options(**server, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    (clean,) = consumed(shared_broker, "dlq-clean", 1)
    assert (clean.key, clean.value, clean.headers) == (b"a", b'{"id":1}', ())
    letters = consumed(shared_broker, "dlq-orders.dlq", 2)
    assert [(each.key, each.value) for each in letters] == [(b"b", b"poison \xff"), (None, b'{"id": -1}')]
    assert [list(each.headers) for each in letters] == [
        [
            ("trace", b"\0x"),
            ("error", b"not UTF-8"),
            ("topic", b"dlq-orders"),
            ("partition", b"0"),
            ("offset", b"1"),
            ("timestamp", b"6"),
        ],
        [
            ("error", b"id is negative"),
            ("topic", b"dlq-orders"),
            ("partition", b"0"),
            ("offset", b"2"),
            ("timestamp", b"7"),
        ],
    ]
