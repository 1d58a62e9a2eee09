"""A topic as a table: of every key the latest record, and a tombstone (no value) takes the key away.

Latest is the highest offset, whatever the timestamps say. That is an order only within a partition, where
Kafka keeps all records of a key; a key found in two of them (the topic was given partitions, or a producer
chose them itself), or in two topics, is an error that names it, unless `order` says what counts, as
("timestamp", "partition", "offset"). Records without a key belong to no table and are left out, as in Kafka
Streams.

All of it is one aggregation in the JVM. On a stream the latest record of every key is Spark's state, deleted
keys included: output mode `update` gives the keys that changed (to foreachBatch: no sink in Python takes it),
`complete` the whole table. Where the table is kept outside of Spark (delta_merger), or only the changes of
each batch are wanted, use these on the batch inside foreachBatch: that takes no state at all.
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
    """The rows that are in the table: the latest of each key, with the columns of `df`."""
    return ktable_changes(df, key, value=value, order=order).where(f.col(OP) == UPSERT).drop(OP)


def ktable_changes(
    df: DataFrame,
    key: str | Sequence[str] = "key",
    *,
    value: str = "value",
    order: Sequence[str] = OFFSET_ORDER,
) -> DataFrame:
    """The latest row of each key and, as `op`, what it does to the table: upsert, or delete.

    Of a stream: one row for every key that a batch has changed.
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
