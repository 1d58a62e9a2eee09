"""A topic as a table: the latest record of every key; a tombstone (no value) deletes the key.

Latest means the highest offset, whatever the timestamps. That is an order only within a partition, where
Kafka keeps all records of a key. A key in two partitions (the topic was given more partitions, or a producer
chose them itself), or in two topics, is an error that names it, unless `order` defines an order, as
("timestamp", "partition", "offset"). Records without a key belong to no table and are left out, as in Kafka
Streams.

It is a single aggregation in the JVM. On a stream the latest record of every key is Spark's state, deleted
keys included: output mode `update` returns the changed keys (to foreachBatch: no Python sink supports it),
`complete` the whole table. If the table is stored outside of Spark (delta_merger), or only the changes of
each batch are needed, use these functions on the batch inside foreachBatch: that needs no state.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from barnabas.spark.columns import names, require

UPSERT = "upsert"
DELETE = "delete"
OP = "op"
OFFSET_ORDER = ("partition", "offset")


def ktable(
    df: DataFrame,
    key: str | Sequence[str] = "key",
    *,
    value: str = "value",
    order: Sequence[str] = OFFSET_ORDER,
) -> DataFrame:
    """The rows of the table: the latest of each key, with the columns of `df`."""
    return ktable_changes(df, key, value=value, order=order).where(f.col(OP) == UPSERT).drop(OP)


def ktable_changes(
    df: DataFrame,
    key: str | Sequence[str] = "key",
    *,
    value: str = "value",
    order: Sequence[str] = OFFSET_ORDER,
) -> DataFrame:
    """The latest row of each key and, as `op`, its effect on the table: upsert, or delete.

    On a stream: one row for every key that a batch has changed.
    """
    keys = names(key)
    require(df, [*keys, value, *order], "ktable")
    if OP in df.columns:
        raise ValueError(f"ktable: there is a column {OP!r} already; drop or rename it")
    has_keys = f.lit(True)
    for each in keys:
        has_keys = has_keys & f.col(each).isNotNull()
    latest = f.max_by(f.struct(*df.columns), f.struct(*order)).alias("latest")
    grouped = df.where(has_keys).groupBy(*keys)
    if order[0] == "partition":
        where = [name for name in ("topic", "partition") if name in df.columns]
        place = f.struct(*where)
        found = grouped.agg(latest, f.min(place).alias("first"), f.max(place).alias("last"))
        row = f.when(f.col("first") == f.col("last"), f.col("latest")).otherwise(_refusal(keys, where))
    else:
        found = grouped.agg(latest)
        row = f.col("latest")
    op = f.when(f.col(value).isNull(), DELETE).otherwise(UPSERT)
    return found.select(row.alias("latest")).select("latest.*").withColumn(OP, op)


def _refusal(keys: Sequence[str], where: Sequence[str]) -> Column:
    def shown(struct: str, fields: Sequence[str], between: str) -> Column:
        return f.concat_ws(between, *(f.col(f"{struct}.{each}").cast("string") for each in fields))

    return f.raise_error(
        f.concat(
            f.lit("ktable: the key "),
            shown("latest", keys, ", "),
            f.lit(" is in the partitions "),
            shown("first", where, "-"),
            f.lit(" and "),
            shown("last", where, "-"),
            f.lit(': which is later? Say it, as order=("timestamp", "partition", "offset")'),
        )
    )
