"""The columns that every codec shares: added by decoding, replaced by encoding.

Decoding adds `data`, `error` and `schema_id`. Encoding replaces the encoded columns by `value`, and leaves
rows that are marked bad unchanged, so that dead letters hold the received bytes. A row that is marked bad
stays so, with its first error: decoding key and value, one after the other, loses neither's error.

Decoding is expensive, and Spark copies the expression of a column into every filter above it, which would
decode again there. It does not copy nondeterministic expressions, so decoders are declared nondeterministic,
although they are not. The cost: Spark does not move a filter below a decoder; filter by topic or offset
first.
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
    """Add `data`, `error` and `schema_id`: the fields of the function's result for each batch of values."""
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
    """Replace the columns by `value`; with `mark`, errors of encoding go to `error`.

    SchemaMismatch if the columns do not have the wanted type.
    """
    data = conform(packed(df, column), type_of(df, column), wanted)
    if not mark:
        return put_value(df, column, _arrow_column(encode, BinaryType(), data))
    result = StructType([StructField("value", BinaryType()), StructField("error", StringType())])
    with_result = df.withColumn(_RESULT, _arrow_column(encode, result, data))
    marked = with_result.withColumn("error", first_error(df, f.col(f"{_RESULT}.error")))
    return put_value(marked, column, f.col(f"{_RESULT}.value")).drop(_RESULT)


def packed(df: DataFrame, column: str | Sequence[str]) -> Column:
    """The struct to encode: the named column, or the named columns as its fields."""
    require(df, names(column), "encode")
    return f.col(column) if isinstance(column, str) else f.struct(*column)


def type_of(df: DataFrame, column: str | Sequence[str]) -> DataType:
    """The type of the result of `packed`."""
    require(df, names(column), "encode")
    return df.schema[column].dataType if isinstance(column, str) else df.select(*column).schema


def put_value(df: DataFrame, column: str | Sequence[str], value: Column) -> DataFrame:
    """Put `value` in place of the encoded columns; a row that is marked bad keeps its own."""
    if "error" in df.columns and "value" in df.columns:
        value = f.when(f.col("error").isNull(), value).otherwise(f.col("value"))
    made_of = [name for name in names(column) if name != "value"]
    return df.withColumn("value", value).drop(*made_of)


def first_error(df: DataFrame, error: Column) -> Column:
    """The earlier error of a row, if it has one; otherwise this one."""
    return f.coalesce(f.col("error"), error) if "error" in df.columns else error


def once(column: Column) -> Column:
    """The same column, in a form that Spark evaluates in one place only."""
    return f.when(f.spark_partition_id() >= 0, column)


def _arrow_column(function: ArrowFunction, result: DataType, argument: Column) -> Column:
    def run(values: pa.Array) -> pa.Array:
        return function(values)

    make: Any = arrow_udf  # its type hints ask for a form that it warns about
    udf = make(run, result)
    called: Column = udf.asNondeterministic()(argument)
    return called
