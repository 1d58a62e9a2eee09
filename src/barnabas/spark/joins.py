"""Joins of a stream: with another stream within a time bound, and with a table.

A column that both sides have, and that is not joined on, appears twice: the right side's with a suffix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from barnabas.spark.columns import names, require, without_clashes


def join_within(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    within: str,
    *,
    watermark: str | None = None,
    how: Literal["inner", "left"] = "inner",
    before: str | None = None,
    left_time: str = "timestamp",
    right_time: str = "timestamp",
    suffix: str = "_right",
) -> DataFrame:
    """Pairs with equal `on` whose right row is at most `within` later, or at most `before` (by default the
    same) earlier.

    `watermark` is how late a row may be, on both sides; it bounds Spark's state. how="left" also returns left
    rows without a match, with nulls, once none can come any more: that needs a watermark, and time must
    advance on both sides (the watermark is that of the slower one).
    """
    keys = names(on)
    _check_how(how, "join_within")
    require(left, [*keys, left_time], "join_within, left")
    require(right, [*keys, right_time], "join_within, right")
    if watermark is None and how != "inner" and (left.isStreaming or right.isStreaming):
        raise ValueError("join_within: an outer join of streams needs a watermark, as watermark='10 minutes'")
    shown = without_clashes(right, left.columns, keys, suffix)
    time = right_time + suffix if right_time in left.columns and right_time not in keys else right_time
    hidden = {key: f"__right_{key}" for key in keys}
    other = shown.withColumnsRenamed(hidden)
    time = hidden.get(time, time)
    if watermark is not None:
        left = left.withWatermark(left_time, watermark)
        other = other.withWatermark(time, watermark)
    lower = f.col(left_time) - _interval(within if before is None else before)
    upper = f.col(left_time) + _interval(within)
    condition = (f.col(time) >= lower) & (f.col(time) <= upper)
    for key, twin in hidden.items():
        condition = condition & (left[key] == other[twin])
    joined = left.join(other, condition, "inner" if how == "inner" else "left_outer")
    return joined.drop(*hidden.values())


def enrich(
    stream: DataFrame,
    table: DataFrame,
    on: str | Sequence[str],
    *,
    how: Literal["left", "inner"] = "left",
    suffix: str = "_table",
) -> DataFrame:
    """Every row with the columns of the table's row with the same `on`; without one nulls, or no row
    (`inner`).

    The table is a batch DataFrame, as ktable(spark.read...). Spark resolves its end offsets once, at first
    use: all batches of a stream see the same table. Use enriching if they must not.
    """
    keys = names(on)
    _check_how(how, "enrich")
    require(stream, keys, "enrich, stream")
    require(table, keys, "enrich, table")
    if table.isStreaming:
        raise ValueError("enrich: the table is a stream; read it with spark.read, or use join_within")
    return stream.join(without_clashes(table, stream.columns, keys, suffix), keys, how)


def enriching(
    table: Callable[[SparkSession], DataFrame],
    on: str | Sequence[str],
    write: Callable[[DataFrame, int], None],
    *,
    how: Literal["left", "inner"] = "left",
    suffix: str = "_table",
) -> Callable[[DataFrame, int], None]:
    """For foreachBatch: passes the rows of every batch, joined with the current table, to `write`.

    `table` makes the DataFrame anew, as lambda spark: ktable(spark.read...load()), so each batch reads the
    whole topic again, and a batch that Spark repeats may find it changed.
    """

    def enriched(batch: DataFrame, batch_id: int) -> None:
        write(enrich(batch, table(batch.sparkSession), on, how=how, suffix=suffix), batch_id)

    return enriched


def _check_how(how: str, who: str) -> None:
    if how not in ("inner", "left"):
        raise ValueError(f"{who}: how is inner or left, not {how!r}")


def _interval(text: str) -> Column:
    return f.expr(f"INTERVAL '{text}'")
