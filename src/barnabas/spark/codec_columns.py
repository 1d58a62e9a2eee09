"""The columns that every codec shares: what decoding adds, what encoding takes away.

Decoding adds `data`, `error` and `schema_id`; encoding replaces what it encodes by `value`, and leaves rows
that are marked bad as they came, so that dead letters hold the bytes that were received. A row that is marked
bad stays so, with its first error: whoever decodes key and value, one after the other, loses neither's.

Decoding is dear, and Spark copies what a column is made of into every filter above it, and would decode
again there. It does not do so with what is not deterministic, so that is what it is told, although it is not
true. The price: a filter does not move below a decoder by itself; filter by topic or offset first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructField, StructType

from barnabas.spark.columns import names, require
from barnabas.spark.conforming import conform

_RESULT = "__barnabas_codec"
ArrowFunction = Callable[[pa.Array], pa.Array]


def add_decoded(df: DataFrame, column: str, decode: ArrowFunction, data: DataType) -> DataFrame:
    """Add `data`, `error` and `schema_id`: the fields of what the function makes of each batch of values."""
    require(df, [column], "decode")
    result = StructType(
        [
            StructField("data", data),
            StructField("error", StringType()),
            StructField("schema_id", IntegerType()),
        ]
    )
    with_result = df.withColumn(_RESULT, _arrow_column(decode, result, f.col(column).cast("binary")))
    added = {name: f.col(f"{_RESULT}.{name}") for name in ("data", "error", "schema_id")}
    added["error"] = first_error(df, added["error"])
    return with_result.withColumns(added).drop(_RESULT)


def put_encoded(
    df: DataFrame, column: str | Sequence[str], wanted: DataType, encode: ArrowFunction, *, mark: bool
) -> DataFrame:
    """Replace the columns by `value`; where `mark`, what cannot be encoded is told in `error`.

    SchemaMismatch where the columns do not have the type wanted.
    """
    data = conform(packed(df, column), type_of(df, column), wanted)
    if not mark:
        return put_value(df, column, _arrow_column(encode, BinaryType(), data))
    result = StructType([StructField("value", BinaryType()), StructField("error", StringType())])
    with_result = df.withColumn(_RESULT, _arrow_column(encode, result, data))
    marked = with_result.withColumn("error", first_error(df, f.col(f"{_RESULT}.error")))
    return put_value(marked, column, f.col(f"{_RESULT}.value")).drop(_RESULT)


def packed(df: DataFrame, column: str | Sequence[str]) -> Column:
    """The struct to encode: the column named, or the columns named as the fields of one."""
    require(df, names(column), "encode")
    return f.col(column) if isinstance(column, str) else f.struct(*column)


def type_of(df: DataFrame, column: str | Sequence[str]) -> DataType:
    """The type of what `packed` gives."""
    require(df, names(column), "encode")
    return df.schema[column].dataType if isinstance(column, str) else df.select(*column).schema


def put_value(df: DataFrame, column: str | Sequence[str], value: Column) -> DataFrame:
    """`value` in place of the columns that it was made of; a row that is marked bad keeps its own."""
    if "error" in df.columns and "value" in df.columns:
        value = f.when(f.col("error").isNull(), value).otherwise(f.col("value"))
    made_of = [name for name in names(column) if name != "value"]
    return df.withColumn("value", value).drop(*made_of)


def first_error(df: DataFrame, error: Column) -> Column:
    """What a row was marked with before, if it was; otherwise this."""
    return f.coalesce(f.col("error"), error) if "error" in df.columns else error


def once(column: Column) -> Column:
    """The same column, which Spark then works out in one place only."""
    return f.when(f.spark_partition_id() >= 0, column)


def _arrow_column(function: ArrowFunction, result: DataType, argument: Column) -> Column:
    def run(values: pa.Array) -> pa.Array:
        return function(values)

    make: Any = arrow_udf  # its types ask for what it then warns of
    udf = make(run, result)
    called: Column = udf.asNondeterministic()(argument)
    return called
