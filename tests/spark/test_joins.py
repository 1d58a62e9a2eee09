"""Joins of streams with streams, and with tables that go on changing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.producer import Producer
from barnabas.spark import enrich, enriching, join_within, ktable
from barnabas.spark.driving import seams
from barnabas.testing import Broker
from tests.support.spark_streams import Files, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "id string, timestamp timestamp, cents long"


def rows(spark: SparkSession, *given: tuple[str, str, int]) -> DataFrame:
    made = spark.createDataFrame(list(given), "id string, clock string, cents long")
    return made.selectExpr("id", "timestamp(concat('2026-01-01 ', clock)) timestamp", "cents")


def pairs(found: Iterable[Any]) -> list[tuple[Any, ...]]:
    return sorted(((row.id, row.cents, row.cents_right) for row in found), key=repr)


def test_pairs_within_a_bound(spark: SparkSession) -> None:
    orders = rows(spark, ("a", "10:00", 1), ("b", "10:00", 2), ("c", "10:00", 3))
    payments = rows(spark, ("a", "10:10", 10), ("b", "10:11", 20), ("a", "09:55", 30), ("d", "10:00", 40))
    found = join_within(orders, payments, "id", "10 minutes")
    assert found.columns == ["id", "timestamp", "cents", "timestamp_right", "cents_right"]
    assert pairs(found.collect()) == [("a", 1, 10), ("a", 1, 30)]
    later = join_within(orders, payments, "id", "10 minutes", before="0 minutes", how="left")
    assert pairs(later.collect()) == [("a", 1, 10), ("b", 2, None), ("c", 3, None)]
    renamed = payments.withColumnsRenamed({"timestamp": "paid_at", "cents": "cents_right"})
    assert pairs(join_within(orders, renamed, ["id"], "10 minutes", right_time="paid_at").collect()) == [
        ("a", 1, 10),
        ("a", 1, 30),
    ]


def test_what_makes_no_sense_is_said(spark: SparkSession, tmp_path: Path) -> None:
    orders = rows(spark, ("a", "10:00", 1))
    with pytest.raises(ValueError, match="join_within, right: there is no column id"):
        join_within(orders, orders.withColumnRenamed("id", "key"), "id", "1 minute")
    with pytest.raises(ValueError, match="both sides have cents_right"):
        join_within(
            orders.withColumnRenamed("timestamp", "cents_right"), orders, "id", "1 minute", left_time="cents"
        )
    stream = Files(spark, tmp_path / "in").stream(SCHEMA)
    with pytest.raises(ValueError, match="outer join of streams needs a watermark"):
        join_within(stream, stream, "id", "1 minute", how="left")
    with pytest.raises(ValueError, match="the table is a stream"):
        enrich(orders, stream, "id")
    outer: Any = "outer"
    for join in (partial(join_within, within="1 minute"), enrich):
        with pytest.raises(ValueError, match="how is inner or left, not 'outer'"):
            join(orders, orders, "id", how=outer)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_two_streams(spark: SparkSession, tmp_path: Path, how: Any) -> None:
    orders, payments = Files(spark, tmp_path / "orders"), Files(spark, tmp_path / "payments")
    orders.put([record("a", "10:00", 1), record("b", "10:01", 2)])
    payments.put([record("x", "10:02", 90)])
    orders.put([record("c", "10:30", 3)])
    payments.put([record("a", "10:04", 10), record("c", "10:31", 30)])  # a's is late, but in time
    orders.put([record("d", "11:30", 4)])
    payments.put([record("y", "11:30", 91)])
    joined = join_within(
        orders.stream(SCHEMA), payments.stream(SCHEMA), "id", "5 minutes", watermark="30 minutes", how=how
    )
    found: list[Any] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        found.extend(batch.collect())

    query = run(joined.writeStream.outputMode("append").foreachBatch(keep), tmp_path / "checkpoint")
    expected = [("a", 1, 10), ("c", 3, 30)] + ([("b", 2, None)] if how == "left" else [])
    assert pairs(found) == sorted(expected, key=repr)
    last = [each for each in query.recentProgress if each["stateOperators"]][-1]
    assert last["stateOperators"][0]["numRowsTotal"] <= 4  # what no match can come for is forgotten


def record(id_: str, clock: str, cents: int) -> dict[str, Any]:
    return {"id": id_, "timestamp": f"2026-01-01T{clock}:00Z", "cents": cents}


class Names:
    """A table in a topic, which says one name at a time."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._bootstrap = broker.bootstrap
        self._topic = topic

    async def create(self) -> None:
        async with Admin(*seams(), self._bootstrap) as admin:
            await admin.create_topics([NewTopic(self._topic, 2, 1, {"cleanup.policy": "compact"})])

    async def tell(self, name: str | None) -> None:
        async with Producer(*seams(), self._bootstrap) as producer:
            await producer.send(self._topic, None if name is None else name.encode(), b"a")

    def table(self, spark: SparkSession) -> DataFrame:
        reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", self._bootstrap)
        return ktable(reader.load(subscribe=self._topic)).selectExpr("string(key) id", "string(value) name")


@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_stream_with_a_table_that_changes(
    spark: SparkSession, shared_broker: Broker, tmp_path: Path, is_fresh: bool
) -> None:
    names = Names(shared_broker, f"names-{is_fresh}")
    asyncio.run(names.create())
    asyncio.run(names.tell("Artur"))
    files = Files(spark, tmp_path / "in")
    for number in range(3):
        files.put([record("a", "10:00", number), record("b", "10:00", number)])
    found: list[tuple[Any, ...]] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        found.extend(sorted((row.cents, row.id, row.name) for row in batch.collect()))
        asyncio.run(names.tell("Jeremias" if batch_id == 0 else None))

    stream = files.stream(SCHEMA)
    if is_fresh:
        writer = stream.writeStream.foreachBatch(enriching(names.table, "id", keep))
    else:
        writer = enrich(stream, names.table(spark), "id").writeStream.foreachBatch(keep)
    run(writer, tmp_path / "checkpoint")
    seen = ["Artur", "Jeremias", None] if is_fresh else ["Artur", "Artur", "Artur"]
    expected = [[(number, "a", name), (number, "b", None)] for number, name in enumerate(seen)]
    assert found == [row for rows in expected for row in rows]


def test_rows_that_the_table_does_not_know(spark: SparkSession) -> None:
    left, right = rows(spark, ("a", "10:00", 1), ("b", "10:00", 2)), rows(spark, ("a", "1:00", 3))
    (inner,) = enrich(left, right, "id", how="inner").collect()
    assert (inner.id, inner.cents, inner.cents_table) == ("a", 1, 3)
    found = sorted((row.id, row.cents_table) for row in enrich(left, right, ["id"]).collect())
    assert found == [("a", 3), ("b", None)]
