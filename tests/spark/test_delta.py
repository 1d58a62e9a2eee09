"""Delta tables: every batch once, by files that the tasks write."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema

from barnabas.core.random import SystemRandom
from barnabas.spark import delta_merger, delta_writer, ktable_changes, merge_delta, write_delta
from tests.support.spark_streams import Files, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Rows = list[tuple[Any, ...]]


def rows_of(path: Path) -> Rows:
    table = DeltaTable(path).to_pyarrow_table()
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def actions_of(path: Path) -> list[dict[str, Any]]:
    """The files of a table, as its log tells of them."""
    found: list[dict[str, Any]] = pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()
    return found


def test_a_version_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(1000).selectExpr("id", "cast(id as string) name").repartition(3)
    assert write_delta(rows, tmp_path, "job", 1)
    assert not write_delta(rows, tmp_path, "job", 1)
    assert not write_delta(rows, tmp_path, "job", 0)
    assert write_delta(rows.where("id < 10"), tmp_path, "job", 2)
    assert write_delta(rows.where("id < 1"), tmp_path, "another job", 1)
    table = DeltaTable(tmp_path)
    assert table.to_pyarrow_table().num_rows == 1011
    assert table.count() == 1011  # by the statistics in the log
    assert len(table.file_uris()) >= 3  # each task writes its own
    assert list((tmp_path / "_barnabas").iterdir()) == []


def test_values_of_every_type_come_back(spark: SparkSession, tmp_path: Path) -> None:
    instant = datetime.datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=datetime.UTC)
    row = {
        "text": "números",
        "number": 7,
        "real": 0.5,
        "flag": True,
        "day": datetime.date(2026, 3, 1),
        "at": instant,
        "raw": b"\x00\xff",
        "parts": [{"key": "a", "value": b"1", "at": instant}],
        "nothing": None,
        "small": 3,
        "price": decimal.Decimal("12.50"),
        "tags": [("a", 1)],
        "local": datetime.datetime(2026, 3, 1, 12, 30),
    }
    schema = (
        "text string, number int, real double, flag boolean, day date, at timestamp, raw binary, "
        "parts array<struct<key string, value binary, at timestamp>>, nothing string, "
        "small smallint, price decimal(10, 2), tags map<string, int>, local timestamp_ntz"
    )
    given = {**row, "tags": {"a": 1}}
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        write_delta(spark.createDataFrame([tuple(given.values())], schema), tmp_path, "job", 1)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert DeltaTable(tmp_path).to_pyarrow_table().to_pylist() == [row]
    (file,) = actions_of(tmp_path)
    assert file["num_records"] == 1
    assert file["min.at"] <= instant <= file["max.at"]
    assert (file["min.number"], file["max.number"], file["null_count.nothing"]) == (7, 7, 1)


def test_a_time_that_no_calendar_of_pythons_has_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    far = spark.sql("SELECT timestamp_micros(1700000000000000 * 1000) AS at, 1 AS n")
    assert write_delta(far, tmp_path, "job", 1)
    numbers = DeltaTable(tmp_path).to_pyarrow_table().column("at").cast(pa.int64()).to_pylist()
    assert numbers == [1700000000000000 * 1000]


def test_a_partitioned_table(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(100).selectExpr("id", "if(id % 3 = 0, null, concat('k ', id % 3)) kind", "id % 2 half")
    write_delta(rows.repartition(2), tmp_path, "job", 1, partition_by=("kind", "half"))
    table = DeltaTable(tmp_path)
    assert table.metadata().partition_columns == ["kind", "half"]
    found = table.to_pyarrow_table(filters=[("kind", "=", "k 1"), ("half", "=", 0)])
    assert sorted(found.column("id").to_pylist()) == [n for n in range(100) if n % 3 == 1 and n % 2 == 0]
    assert table.to_pyarrow_table().num_rows == 100
    actions = actions_of(tmp_path)
    assert sum(each["num_records"] for each in actions if each["partition.kind"] is None) == 34
    with pytest.raises(ValueError, match="partitioned by kind, half, not by nothing"):
        write_delta(rows, tmp_path, "job", 2)
    with pytest.raises(ValueError, match="cannot be partitioned by real, which is double"):
        write_delta(rows.selectExpr("id * 1d real"), tmp_path / "other", "job", 1, partition_by="real")


def test_an_address_instead_of_a_path(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(50_000).selectExpr("id", "sha2(cast(id AS string), 256) text")
    assert write_delta(rows, f"file://{tmp_path}", "job", 1)
    assert not write_delta(rows, tmp_path, "job", 1)
    changes = spark.sql("SELECT 7L id, 'changed' text, 'upsert' op UNION ALL SELECT 8L, null, 'delete'")
    assert merge_delta(changes, f"file://{tmp_path}", "id", "job", 2)
    found = dict(rows_of(tmp_path))
    assert (len(found), found[7], 8 in found) == (49_999, "changed", False)


def test_other_columns_are_refused_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    write_delta(spark.range(5).selectExpr("id", "id name"), tmp_path, "job", 1)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match="extra is not in the table; name is missing"):
        write_delta(spark.range(5).selectExpr("id", "id extra"), tmp_path, "job", 2)
    with pytest.raises(ValueError, match="name is string and not long"):
        write_delta(spark.range(5).selectExpr("id", "'a' name"), tmp_path, "job", 2)
    assert sorted(tmp_path.rglob("*")) == before
    assert write_delta(spark.range(5).selectExpr("id name", "id"), tmp_path, "job", 2)  # in another order


@pytest.mark.parametrize("rule", ["delta.invariants", "delta.generationExpression"])
def test_a_table_whose_values_have_to_be_checked_is_refused(
    spark: SparkSession, tmp_path: Path, rule: str
) -> None:
    expression = json.dumps({"expression": {"expression": "id > 5"}}) if rule.endswith("variants") else "6"
    DeltaTable.create(tmp_path, Schema([Field("id", "long", metadata={rule: expression})]))
    with pytest.raises(ValueError, match=f"{rule}: rows would have to be checked"):
        write_delta(spark.range(3), tmp_path, "job", 1)
    assert rows_of(tmp_path) == []


def test_a_type_that_delta_does_not_know(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gap: a Delta table has no interval day"):
        write_delta(spark.sql("SELECT 1 id, INTERVAL '1' DAY gap"), tmp_path, "job", 1)


def test_no_rows_make_no_commit(spark: SparkSession, tmp_path: Path) -> None:
    write_delta(spark.range(0), tmp_path, "job", 1)
    assert DeltaTable(tmp_path).version() == 0
    assert write_delta(spark.range(3), tmp_path, "job", 1)


def test_of_two_drivers_with_one_version_one_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from barnabas.spark import delta

    write_delta(spark.range(3), tmp_path, "job", 1)
    write_files = delta.write_files

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(delta, "write_files", write_files)
        assert write_delta(spark.range(3, 5), tmp_path, "job", 2)
        return write_files(*args, **kwargs)

    monkeypatch.setattr(delta, "write_files", overtaken)
    assert not write_delta(spark.range(3, 5), tmp_path, "job", 2)
    assert rows_of(tmp_path) == [(0,), (1,), (2,), (3,), (4,)]


def test_a_merge_replaces_adds_and_takes_away(spark: SparkSession, tmp_path: Path) -> None:
    def changes(*rows: tuple[bytes, int | None, str | None]) -> DataFrame:
        return spark.createDataFrame(list(rows), "key binary, Number int, op string")

    assert merge_delta(changes((b"a", 1, "upsert"), (b"b", 2, "upsert")), tmp_path, "key", "job", 1)
    second = changes((b"a", None, "delete"), (b"b", 20, "upsert"), (b"c", 3, "upsert"), (b"d", 4, "delete"))
    assert merge_delta(second, tmp_path, "key", "job", 2)
    assert not merge_delta(changes((b"a", 1, "upsert")), tmp_path, "key", "job", 2)
    assert rows_of(tmp_path) == [(b"b", 20), (b"c", 3)]
    assert list((tmp_path / "_barnabas").iterdir()) == []
    with pytest.raises(ValueError, match=r"a key \(key\) comes more than once"):
        merge_delta(changes((b"e", 1, "upsert"), (b"e", 2, "upsert")), tmp_path, "key", "job", 3)
    with pytest.raises(ValueError, match="key is null in some rows"):
        merge_delta(spark.sql("SELECT cast(null AS binary) key, 1 Number"), tmp_path, "key", "job", 3)
    with pytest.raises(ValueError, match="op is 'DELETE', None in some rows; it is 'upsert' or 'delete'"):
        merge_delta(changes((b"b", 1, "DELETE"), (b"e", 2, None)), tmp_path, "key", "job", 3)
    assert rows_of(tmp_path) == [(b"b", 20), (b"c", 3)]


def test_a_merge_that_fails_takes_what_it_has_staged_along(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemRandom, "uuid", lambda _: "this-one")
    in_the_way = tmp_path / "_barnabas" / "this-one.json"
    in_the_way.mkdir(parents=True)  # where Spark's commit, when all tasks are through, is to put their list
    with pytest.raises(Exception, match=r"this-one\.json"):
        merge_delta(spark.range(100).repartition(2), tmp_path, "id", "job", 1)
    assert list((tmp_path / "_barnabas").iterdir()) == [in_the_way]
    assert rows_of(tmp_path) == []


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, tmp_path / "in")


def failing_once(write: Callable[[DataFrame, int], None], at: int) -> Callable[[DataFrame, int], None]:
    """As if the driver died between the commit of the table and that of Spark."""
    is_left = [True]

    def both(batch: DataFrame, batch_id: int) -> None:
        write(batch, batch_id)
        if batch_id == at and is_left:
            is_left.clear()
            raise RuntimeError("died after the table's commit")

    return both


def test_a_batch_that_spark_repeats_is_there_once(files: Files, tmp_path: Path) -> None:
    for number in range(3):
        files.put([{"n": number * 10 + n} for n in range(10)])
    write = failing_once(delta_writer(tmp_path / "table"), at=1)
    with pytest.raises(Exception, match="died after"):
        run(files.stream("n long").writeStream.foreachBatch(write), tmp_path / "checkpoint")
    assert len(rows_of(tmp_path / "table")) == 20
    run(files.stream("n long").writeStream.foreachBatch(write), tmp_path / "checkpoint")
    assert rows_of(tmp_path / "table") == sorted(((n,) for n in range(30)), key=repr)


def test_a_batch_that_is_repeated_keeps_its_state(files: Files, tmp_path: Path) -> None:
    for _ in range(3):
        files.put([{"n": n % 2} for n in range(10)])
    counted = files.stream("n long").groupBy("n").count().writeStream.outputMode("update")
    write = failing_once(delta_writer(tmp_path / "table"), at=1)
    with pytest.raises(Exception, match="died after"):
        run(counted.foreachBatch(write), tmp_path / "checkpoint")
    run(counted.foreachBatch(write), tmp_path / "checkpoint")
    assert rows_of(tmp_path / "table") == [(n, count) for n in (0, 1) for count in (10, 15, 5)]


def test_a_changelog_becomes_a_table(files: Files, tmp_path: Path) -> None:
    files.put([record("a", "1", 0), record("b", "1", 1), record("a", "2", 2)])
    files.put([record("a", None, 3), record("c", "1", 4)])
    files.put([record("b", "2", 5), record("a", "3", 6), record("c", None, 7)])
    merge = failing_once(delta_merger(tmp_path / "table", "key", prepare=ktable_changes), at=1)
    stream = files.stream("key string, value string, partition int, offset long").writeStream
    with pytest.raises(Exception, match="died after"):
        run(stream.foreachBatch(merge), tmp_path / "checkpoint")
    assert rows_of(tmp_path / "table") == [("b", "1", 0, 1), ("c", "1", 0, 4)]
    run(stream.foreachBatch(merge), tmp_path / "checkpoint")
    assert rows_of(tmp_path / "table") == [("a", "3", 0, 6), ("b", "2", 0, 5)]


def record(key: str, value: str | None, offset: int) -> dict[str, Any]:
    return {"key": key, "value": value, "partition": 0, "offset": offset}


def test_the_log_names_query_and_batch(files: Files, tmp_path: Path) -> None:
    files.put([{"n": 1}])
    query = run(
        files.stream("n long").writeStream.foreachBatch(delta_writer(tmp_path / "table", "rows")),
        tmp_path / "checkpoint",
    )
    log = (tmp_path / "table" / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    (found,) = [entry["txn"] for line in log if "txn" in (entry := json.loads(line))]
    assert (found["appId"], found["version"]) == (f"{query.id}/rows", 0)
