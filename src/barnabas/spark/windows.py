"""Aggregates over windows of event time, by key or over all rows.

The result has `window_start` and `window_end` (excluded), the columns of `by`, then the aggregates, and
nothing else, so the call shows its columns.

On a stream, `watermark` is how far a row's time may be behind the latest time seen. A window's row is final
once the watermark has passed its end: output mode `append` returns it then, once; `update` returns it
whenever it changes. The watermark moves between batches: a late row whose window still exists counts, later
rows are dropped by Spark. The query's progress has their number (`numRowsDroppedByWatermark`; rows of one
window and key in one batch count once, since they are aggregated before) but not the rows; keep the raw topic
if they are needed. Without a watermark nothing is ever dropped, nor removed from the state, and `append` is
refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from barnabas.spark.columns import names, require


def tumbling(
    df: DataFrame,
    time: str,
    length: str,
    *aggregates: Column,
    by: str | Sequence[str] = (),
    watermark: str | None = None,
) -> DataFrame:
    """Adjacent windows: every row is in one. `length` as "10 minutes"."""
    return _windowed(df, time, f.window(time, length), aggregates, names(by), watermark)


def sliding(
    df: DataFrame,
    time: str,
    length: str,
    every: str,
    *aggregates: Column,
    by: str | Sequence[str] = (),
    watermark: str | None = None,
) -> DataFrame:
    """Windows of a length, one beginning after each `every`: a row is in all windows that cover it."""
    return _windowed(df, time, f.window(time, length, every), aggregates, names(by), watermark)


def sessions(
    df: DataFrame,
    time: str,
    gap: str,
    *aggregates: Column,
    by: str | Sequence[str],
    watermark: str | None = None,
) -> DataFrame:
    """Windows of rows with the same `by` that end `gap` after the last one.

    On a stream Spark supports them in output mode `append` only.
    """
    if not names(by):
        raise ValueError("sessions: name the columns whose rows make up a session, as by='customer'")
    return _windowed(df, time, f.session_window(time, gap), aggregates, names(by), watermark)


def _windowed(
    df: DataFrame,
    time: str,
    window: Column,
    aggregates: Sequence[Column],
    by: list[str],
    watermark: str | None,
) -> DataFrame:
    require(df, [time, *by], "windows")
    if not aggregates:
        raise ValueError("windows: no aggregate; give some, as f.count('*').alias('orders')")
    if watermark is not None:
        df = df.withWatermark(time, watermark)
    found = df.groupBy(window.alias("window"), *by).agg(*aggregates)
    results = found.columns[1 + len(by) :]
    bounds = (f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end"))
    return found.select(*bounds, *by, *results)
