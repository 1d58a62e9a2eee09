"""What is said of a file: never less than what is in it."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from barnabas.spark.parquet_stats import file_stats, partition_text

DAY = datetime.date(2026, 3, 1)
EARLY = datetime.datetime(2026, 3, 1, 12, 0, 0, 1999, tzinfo=datetime.UTC)
LATE = datetime.datetime(2026, 3, 1, 12, 0, 0, 5001, tzinfo=datetime.UTC)


def stats_of(tmp_path: Path, columns: dict[str, Any], rows_a_group: int = 2) -> dict[str, Any]:
    parquet.write_table(pa.table(columns), tmp_path / "file", row_group_size=rows_a_group)
    return file_stats(parquet.read_metadata(tmp_path / "file"))


def test_bounds_over_all_row_groups(tmp_path: Path) -> None:
    found = stats_of(tmp_path, {"n": [5, 3, None, 9, 4], "text": ["b", "a", "d", "c", "é"], "day": [DAY] * 5})
    assert found == {
        "numRecords": 5,
        "minValues": {"n": 3, "text": "a", "day": "2026-03-01"},
        "maxValues": {"n": 9, "text": "é", "day": "2026-03-01"},
        "nullCount": {"n": 1, "text": 0, "day": 0},
    }


def test_times_are_rounded_outwards(tmp_path: Path) -> None:
    both = pa.array([EARLY, LATE], pa.timestamp("us", "UTC"))
    local = both.cast(pa.timestamp("us"))
    found = stats_of(tmp_path, {"at": both, "local": local})
    assert found["minValues"] == {"at": "2026-03-01T12:00:00.001Z", "local": "2026-03-01T12:00:00.001"}
    assert found["maxValues"] == {"at": "2026-03-01T12:00:00.006Z", "local": "2026-03-01T12:00:00.006"}


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()], ids=["instant", "local", "day"]
)
def test_times_beyond_pythons_have_no_bound(tmp_path: Path, kind: pa.DataType) -> None:
    number = pa.int32() if kind == pa.date32() else pa.int64()
    last = 2**31 - 1 if kind == pa.date32() else 2**62
    found = stats_of(tmp_path, {"at": pa.array([0, last], number).cast(kind)})
    assert [*found["minValues"]] == ["at"]
    assert found["maxValues"] == {}
    found = stats_of(tmp_path, {"at": pa.array([-last, 0], number).cast(kind)})
    assert found["minValues"] == {}
    assert [*found["maxValues"]] == ["at"]


def test_long_text_has_no_upper_bound(tmp_path: Path) -> None:
    found = stats_of(tmp_path, {"text": ["a" * 40, "b" * 40]})
    assert (found["minValues"], found["maxValues"]) == ({"text": "a" * 32}, {})


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, float("nan")]),
        pa.array([True, False]),
        pa.array([b"\x00", b"\xff"]),
        pa.array([{"n": 1}, {"n": 2}]),
        pa.array([[1], [2, 3]]),
        pa.array([None, None], pa.int64()),
    ],
    ids=["floating", "boolean", "binary", "struct", "list", "null"],
)
def test_what_has_no_order_has_no_bounds(tmp_path: Path, column: Any) -> None:
    found = stats_of(tmp_path, {"column": column})
    assert (found["numRecords"], found["minValues"], found["maxValues"]) == (2, {}, {})


def test_a_group_of_nulls_among_others_keeps_the_bounds(tmp_path: Path) -> None:
    found = stats_of(tmp_path, {"n": pa.array([None, None, 7, 8], pa.int64())})
    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({"n": 7}, {"n": 8}, {"n": 2})


def test_values_that_tables_are_partitioned_by() -> None:
    values = [None, True, 7, "a b", DAY]
    assert [partition_text(each) for each in values] == [None, "true", "7", "a b", "2026-03-01"]
