"""Checks that rows of a DataFrame fit a Delta table before they are written.

Nothing is widened, added or dropped: rows that do not fit are refused before anything is written, by an error
that names the columns. Tables with rules that only their own writer can enforce are refused, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

_PARTITION_TYPES = (BooleanType, ByteType, DateType, IntegerType, LongType, ShortType, StringType)
_LEAVES = (
    *_PARTITION_TYPES,
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    TimestampNTZType,
    TimestampType,
)
_MAPPING = "delta.columnMapping.mode"
_CONSTRAINT = "delta.constraints."
# attributes of a column that restrict its values
_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.")


class DeltaRefused(ValueError):
    """Rows that do not fit a Delta table."""


def schema_of(schema: StructType) -> Schema:
    """The schema of a table for such rows, in Delta's spelling, which is Spark's; every column is
    nullable."""
    from deltalake import Schema

    for field in schema:
        for leaf in _leaves(field.dataType):
            if not isinstance(leaf, _LEAVES):
                raise DeltaRefused(
                    f"{field.name}: a Delta table has no {leaf.simpleString()}; cast or drop it"
                )
    return Schema.from_json(json.dumps(_nullable(schema.jsonValue())))


def _leaves(kind: DataType) -> Iterator[DataType]:
    if isinstance(kind, StructType):
        for field in kind:
            yield from _leaves(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _leaves(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _leaves(kind.keyType)
        yield from _leaves(kind.valueType)
    else:
        yield kind


def check_partitions(schema: StructType, by: tuple[str, ...]) -> None:
    """DeltaRefused for columns that cannot partition a table."""
    for name in by:
        kind = schema[name].dataType
        if not isinstance(kind, _PARTITION_TYPES):
            raise DeltaRefused(
                f"a table cannot be partitioned by {name}, which is {kind.simpleString()}; "
                "text, whole numbers, dates and booleans will do"
            )


def check_table(table: DeltaTable, schema: StructType, by: tuple[str, ...]) -> None:
    """DeltaRefused if the table does not fit such rows."""
    metadata = table.metadata()
    configuration = metadata.configuration
    if configuration.get(_MAPPING, "none") != "none":
        raise DeltaRefused(f"{table.table_uri}: {_MAPPING} is set; write it with a writer that knows of it")
    rules = [name for name in configuration if name.startswith(_CONSTRAINT)]
    rules += [name for name in _RULES if f'"{name}' in table.schema().to_json()]
    if rules:
        raise DeltaRefused(f"{table.table_uri}: {', '.join(rules)}: rows would have to be checked")
    if tuple(metadata.partition_columns) != by:
        there = ", ".join(metadata.partition_columns) or "nothing"
        raise DeltaRefused(f"{table.table_uri}: partitioned by {there}, not by {', '.join(by) or 'nothing'}")
    _check_columns(table, schema)


def _check_columns(table: DeltaTable, schema: StructType) -> None:
    there = {field.name: field for field in table.schema().fields}
    given = {field.name: field for field in schema_of(schema).fields}
    wrong = [f"{name} is not in the table" for name in given if name not in there]
    wrong += [f"{name} is missing" for name in there if name not in given]
    for name in given.keys() & there.keys():
        if _kind(given[name]) != _kind(there[name]):
            wrong.append(f"{name} is {_spelt(given[name])} and not {_spelt(there[name])}")
        elif not there[name].nullable and schema[name].nullable:
            wrong.append(f"{name} may be null, which the table does not allow")
    if wrong:
        raise DeltaRefused(f"{table.table_uri}: the columns do not fit: {'; '.join(sorted(wrong))}")


def _kind(field: Any) -> Any:
    return _nullable(json.loads(field.to_json())["type"])


def _spelt(field: Any) -> str:
    kind = json.loads(field.to_json())["type"]
    return kind if isinstance(kind, str) else json.dumps(kind)


def _nullable(part: Any) -> Any:
    """A schema's JSON with everything nullable, and without metadata."""
    if isinstance(part, list):
        return [_nullable(each) for each in part]
    if not isinstance(part, dict):
        return part
    loose = {name: _nullable(each) for name, each in part.items() if name != "metadata"}
    loose |= {name: True for name in ("nullable", "containsNull", "valueContainsNull") if name in part}
    return loose | ({"metadata": {}} if "nullable" in part else {})
