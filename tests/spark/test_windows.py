"""Windows of event time: the columns that come out, what is late, and when a stream gives them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.spark import sessions, sliding, tumbling
from tests.support.spark_streams import Files, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "at timestamp, who string, cents long"


def orders(spark: SparkSession, *given: tuple[str, str, int]) -> DataFrame:
    rows = spark.createDataFrame(list(given), "clock string, who string, cents long")
    return rows.selectExpr("timestamp(concat('2026-01-01 ', clock)) at", "who", "cents")


def shown(df: DataFrame) -> list[tuple[Any, ...]]:
    """Rows with windows as clock times."""
    times = ("date_format(window_start, 'HH:mm') window_start", "date_format(window_end, 'HH:mm') window_end")
    return sorted(tuple(row) for row in df.selectExpr(*times, *df.columns[2:]).collect())


def test_tumbling(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    df = orders(spark, ("10:01", "K.", 5), ("10:09:59", "K.", 6), ("10:10", "K.", 7), ("10:02", "Olga", 1))
    found = tumbling(df, "at", "10 minutes", f.sum("cents").alias("cents"), f.count("*").alias("n"), by="who")
    assert found.columns == ["window_start", "window_end", "who", "cents", "n"]
    assert shown(found) == [
        ("10:00", "10:10", "K.", 11, 2),
        ("10:00", "10:10", "Olga", 1, 1),
        ("10:10", "10:20", "K.", 7, 1),
    ]


def test_sliding_over_all(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    df = orders(spark, ("10:01", "K.", 5), ("10:07", "Olga", 6))
    found = sliding(df, "at", "10 minutes", "5 minutes", f.sum("cents").alias("cents"))
    assert shown(found) == [("09:55", "10:05", 5), ("10:00", "10:10", 11), ("10:05", "10:15", 6)]


def test_sessions(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    df = orders(spark, ("10:00", "K.", 1), ("10:04", "K.", 2), ("10:10", "K.", 4), ("10:03", "Olga", 8))
    found = sessions(df, "at", "5 minutes", f.sum("cents").alias("cents"), by=("who",))
    assert shown(found) == [
        ("10:00", "10:09", "K.", 3),
        ("10:03", "10:08", "Olga", 8),
        ("10:10", "10:15", "K.", 4),
    ]


def test_what_makes_no_sense_is_said(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    df = orders(spark, ("10:00", "K.", 1))
    with pytest.raises(ValueError, match="windows: there is no column when, only at, who, cents"):
        tumbling(df, "when", "1 minute", f.count("*"))
    with pytest.raises(ValueError, match="no aggregate"):
        tumbling(df, "at", "1 minute")
    with pytest.raises(ValueError, match="sessions: name the columns"):
        sessions(df, "at", "1 minute", f.count("*"), by=())


def test_a_stream_gives_a_window_once_it_is_final_and_counts_what_comes_too_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    files = Files(spark, tmp_path / "in")
    files.put([order("10:01", 1), order("10:12", 2)])
    files.put([order("10:09", 4), order("10:21", 8)])  # late, but not too late: the watermark is 10:07
    files.put([order("10:45", 16)])  # with this the first windows go
    files.put([order("10:02", 32), order("10:46", 64)])  # too late
    batches: list[list[tuple[Any, ...]]] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        batches.append(shown(batch))

    totals = tumbling(
        files.stream(SCHEMA), "at", "10 minutes", f.sum("cents").alias("cents"), watermark="5 minutes"
    )
    query = run(totals.writeStream.outputMode("append").foreachBatch(keep), tmp_path / "checkpoint")
    assert [row for batch in batches for row in batch] == [
        ("10:00", "10:10", 5),
        ("10:10", "10:20", 2),
        ("10:20", "10:30", 8),
    ]
    dropped = [
        state["numRowsDroppedByWatermark"]
        for progress in query.recentProgress
        for state in progress["stateOperators"]
    ]
    assert sum(dropped) == 1


def order(clock: str, cents: int) -> dict[str, Any]:
    return {"at": f"2026-01-01T{clock}:00Z", "who": "K.", "cents": cents}
