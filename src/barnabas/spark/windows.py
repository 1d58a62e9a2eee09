"""Aggregates over windows of event time, by key or over all.

The result has `window_start` and `window_end` (excluded), the columns of `by`, then the aggregates: nothing
else, so what comes out is known from the call.

On a stream, `watermark` is how long after the youngest time seen a row may still come. A window's row is
final once the watermark has passed its end: output mode `append` gives it then, once; `update` gives it
whenever it changes. The watermark moves between batches: what comes while its window is still there counts,
later rows are dropped by Spark. It says how many (in the query's progress, `numRowsDroppedByWatermark`; rows
of one window and key that come in one batch count once, being added up before) but not which; whoever needs
them keeps the raw topic. Without a watermark nothing is ever dropped, nor forgotten, and `append` is refused.
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
    """Windows side by side: every row is in one. `length` as "10 minutes"."""
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
    """Windows of a length, one beginning `every` so often: a row is in as many as cover it."""
    return _windowed(df, time, f.window(time, length, every), aggregates, names(by), watermark)


def sessions(
    df: DataFrame,
    time: str,
    gap: str,
    *aggregates: Column,
    by: str | Sequence[str],
    watermark: str | None = None,
) -> DataFrame:
    """Windows that last as long as rows of the same `by` come, and end `gap` after the last.

    On a stream Spark gives them in output mode `append` only.
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
