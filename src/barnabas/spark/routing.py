"""Good rows one way, bad rows to `<topic>.dlq`: a row is bad where its column `error` says why.

Decoders set `error`, `reject` adds rules of one's own, and nothing here loses a row: `good` and
`dead_letters` part a DataFrame in two. A dead letter is the record as it came (key, value, headers, byte for
byte) with headers that say what was wrong and where it stood, so any client can read it, and send it again.

`routed` does both in one pass, for pipelines that make one row of each; `with_dead_letters` joins two
DataFrames for those that do more, at the price of reading the source twice. All work on batches and streams.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

SUFFIX = ".dlq"
# what a dead letter tells of where it stood, beside its error
_WHERE = ("topic", "partition", "offset", "timestamp")
_RECORD = ("topic", "key", "value", "headers")
_HEADERS = "array<struct<key:string,value:binary>>"


class RoutingError(ValueError):
    """A DataFrame lacks a column that is needed to route its rows."""


def good(df: DataFrame) -> DataFrame:
    """The rows without an error, and without that column."""
    _require(df, "error")
    return df.filter(f.col("error").isNull()).drop("error")


def reject(df: DataFrame, condition: Column | str, reason: Column | str) -> DataFrame:
    """Mark the rows for which the condition holds as bad; what was bad before keeps its first error.

    `reason` is a text, or a column of texts; where that is null the row is bad all the same. A condition that
    is null does not hold.
    """
    held = f.expr(condition) if isinstance(condition, str) else condition
    text = f.lit(reason) if isinstance(reason, str) else f.coalesce(reason, f.lit("rejected"))
    before = f.col("error") if "error" in df.columns else f.lit(None).cast("string")
    return df.withColumn("error", f.when(before.isNull() & held, text).otherwise(before))


def dead_letters(df: DataFrame, suffix: str = SUFFIX) -> DataFrame:
    """The bad rows as records for `<topic><suffix>`: columns topic, key, value, headers, ready to be written.

    Columns that the source was told to leave out are left out here: without a key it is null, without an
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
    """Records to write and the dead letters of `decoded`, for one write: so both are there, or neither.

    `out` goes to its column `topic`, or all of it to the topic named. Spark reads the source twice for this,
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

    For pipelines that make one row of each: decode, change `data`, encode (which leaves the value of a bad
    row as it came). The topic of good rows is a name, or a column of names.
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
    """A column of the record's, null where the DataFrame has none."""
    return (f.col(name) if name in df.columns else f.lit(None)).cast(kind).alias(name)


def _marked_headers(df: DataFrame) -> Column:
    """The headers it had, then what is wrong and where it stood, as texts; time in ms since 1970."""
    marks = [_header("error", f.col("error"))]
    for name in _WHERE:
        if name in df.columns:
            column = f.unix_millis(name) if name == "timestamp" else f.col(name)
            marks.append(_header(name, column.cast("string")))
    had = f.coalesce(_column(df, "headers", _HEADERS), f.array().cast(_HEADERS))
    return f.concat(had, f.array(*marks).cast(_HEADERS))


def _header(key: str, value: Column) -> Column:
    return f.struct(f.lit(key).alias("key"), value.cast("binary").alias("value"))
