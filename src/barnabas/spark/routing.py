"""Sends good rows to a topic, and bad rows to `<topic>.dlq`: a row is bad if its column `error` has a reason.

Decoders set `error`, `reject` adds rules, and no row is lost: `good` and `dead_letters` split a DataFrame in
two. A dead letter is the original record (key, value, headers, byte for byte) with headers for the error and
the record's position, so any client can read it, and send it again. `routed` does both in one pass, for
pipelines with one output row for each input row; `with_dead_letters` joins two DataFrames for other
pipelines, at the cost of reading the source twice. All work on batches and streams.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

SUFFIX = ".dlq"
# the position in a dead letter's headers, beside its error
_WHERE = ("topic", "partition", "offset", "timestamp")
_RECORD = ("topic", "key", "value", "headers")
_HEADERS = "array<struct<key:string,value:binary>>"


class RoutingError(ValueError):
    """A DataFrame lacks a column that is needed to route its rows."""


def good(df: DataFrame) -> DataFrame:
    """The rows without an error, and without the column `error`."""
    _require(df, "error")
    return df.filter(f.col("error").isNull()).drop("error")


def reject(df: DataFrame, condition: Column | str, reason: Column | str) -> DataFrame:
    """Mark the rows for which the condition holds as bad; a row that was bad before keeps its first error.

    `reason` is a text, or a column of texts; if that is null the row is bad all the same. A condition that is
    null does not hold.
    """
    held = f.expr(condition) if isinstance(condition, str) else condition
    text = f.lit(reason) if isinstance(reason, str) else f.coalesce(reason, f.lit("rejected"))
    before = f.col("error") if "error" in df.columns else f.lit(None).cast("string")
    return df.withColumn("error", f.when(before.isNull() & held, text).otherwise(before))


def dead_letters(df: DataFrame, suffix: str = SUFFIX) -> DataFrame:
    """The bad rows as records for `<topic><suffix>`: columns topic, key, value, headers, ready to be written.

    Columns that the source leaves out are missing here: without a key column the key is null, without an
    offset there is no such header.
    """
    _require(df, "error", "topic", "value")
    return df.filter(f.col("error").isNotNull()).select(
        f.concat("topic", f.lit(suffix)).alias("topic"),
        _column(df, "key", "binary"),
        f.col("value").cast("binary").alias("value"),
        _marked_headers(df).alias("headers"),
    )


def with_dead_letters(
    out: DataFrame, decoded: DataFrame, *, topic: str | None = None, suffix: str = SUFFIX
) -> DataFrame:
    """Records to write and the dead letters of `decoded`, in one write: so both are written, or neither.

    `out` is routed by its column `topic`, or goes to the named topic. Spark reads the source twice for this,
    once for each; `routed` reads it once.
    """
    _require(out, "value")
    records = out if topic is None else out.withColumn("topic", f.lit(topic))
    _require(records, "topic")
    kept = [
        f.col("topic").cast("string").alias("topic"),
        _column(records, "key", "binary"),
        f.col("value").cast("binary").alias("value"),
        _column(records, "headers", _HEADERS),
    ]
    return records.select(kept).unionByName(dead_letters(decoded, suffix))


def routed(df: DataFrame, topic: str | Column, suffix: str = SUFFIX) -> DataFrame:
    """All rows as records for one write, in one pass: good ones to the topic, bad ones to `<topic>.dlq`.

    For pipelines with one output row for each input row: decode, change `data`, encode (which keeps the value
    of a bad row). The topic of good rows is a name, or a column of names.
    """
    _require(df, "error", "topic", "value")
    target = f.lit(topic) if isinstance(topic, str) else topic
    is_good = f.col("error").isNull()
    return df.select(
        f.when(is_good, target).otherwise(f.concat("topic", f.lit(suffix))).alias("topic"),
        _column(df, "key", "binary"),
        f.col("value").cast("binary").alias("value"),
        f.when(is_good, _column(df, "headers", _HEADERS)).otherwise(_marked_headers(df)).alias("headers"),
    )


def _require(df: DataFrame, *names: str) -> None:
    missing = [name for name in names if name not in df.columns]
    if missing:
        raise RoutingError(
            f"no column {', '.join(missing)} among {', '.join(df.columns)}: decode first (`error`), and keep "
            "the columns of the source (topic, value) beside what was decoded"
        )


def _column(df: DataFrame, name: str, kind: str) -> Column:
    """A column of the record, null if the DataFrame does not have it."""
    return (f.col(name) if name in df.columns else f.lit(None)).cast(kind).alias(name)


def _marked_headers(df: DataFrame) -> Column:
    """The original headers, then the error and the position, as texts; the time in ms since 1970."""
    marks = [_header("error", f.col("error"))]
    for name in _WHERE:
        if name in df.columns:
            column = f.unix_millis(name) if name == "timestamp" else f.col(name)
            marks.append(_header(name, column.cast("string")))
    had = f.coalesce(_column(df, "headers", _HEADERS), f.array().cast(_HEADERS))
    return f.concat(had, f.array(*marks).cast(_HEADERS))


def _header(key: str, value: Column) -> Column:
    return f.struct(f.lit(key).alias("key"), value.cast("binary").alias("value"))
