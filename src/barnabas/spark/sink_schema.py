"""The columns of a write: their names and types, and how a batch of them becomes records.

`value` is required, and `topic` unless the option names one. Other columns are not written, as in Spark's own
connector, so a DataFrame read from a topic can be written as it is. `timestamp` is the record's timestamp;
without it, or if it is null, that is the time of sending.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_HEADERS = "array<struct<key:string,value:binary>>"
_TYPES = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "headers": (_HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "double"),
}
_MICROS = 1_000_000


class SchemaError(ValueError):
    """Columns that cannot be written."""


class Column(NamedTuple):
    """A column that is written, and its index in the DataFrame."""

    name: str
    place: int


def written_columns(schema: StructType, topic: str | None) -> tuple[Column, ...]:
    """The columns that are written; SchemaError if they are invalid."""
    names = [field.name for field in schema.fields]
    there = {name: names.index(name) for name in _TYPES if name in names}
    for name, index in there.items():
        if names.count(name) > 1:
            raise SchemaError(f"there are {names.count(name)} columns {name}: select one of them")
        _check_type(name, schema.fields[index].dataType.simpleString())
    if "value" not in there:
        raise SchemaError(
            f"there is no column value: name what is to be written so, as string or binary; "
            f"the columns are {', '.join(names) or 'none'}"
        )
    if topic is not None:  # as in Spark's own connector, the option overrides the column
        there.pop("topic", None)
    elif "topic" not in there:
        raise SchemaError("no topic: set the option topic, or add a column topic (string) to the rows")
    return tuple(Column(name, index) for name, index in there.items())


def _check_type(name: str, found: str) -> None:
    # collations change how strings compare, not their bytes
    if found.split(" collate ")[0] not in _TYPES[name]:
        wanted = " or ".join(_TYPES[name])
        raise SchemaError(f"column {name} is {found} and must be {wanted}: cast it, or leave it out")


def to_records(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """The columns that are written, in the client's form; only times in seconds are copied."""
    arrays = [_column(batch.column(each.place), each.name) for each in columns]
    return pa.RecordBatch.from_arrays(arrays, [each.name for each in columns])


def _column(array: pa.Array, name: str) -> pa.Array:
    if name == "timestamp" and pa.types.is_floating(array.type):
        import pyarrow.compute as pc  # type: ignore[import-untyped]  # a tenth of a second for every worker

        return pc.floor(pc.multiply(array, _MICROS)).cast(pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return array


def payload_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of keys and values: independent of how the rows are cut into batches."""
    names = batch.schema.names
    return sum(_data_bytes(batch.column(names.index(name))) for name in ("key", "value") if name in names)


def _data_bytes(array: pa.Array) -> int:
    if not len(array):
        return 0
    bytes_ = memoryview(array.buffers()[1]).cast("B")
    is_large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    ends: memoryview[int] = bytes_.cast("q") if is_large else bytes_.cast("i")
    return int(ends[array.offset + len(array)] - ends[array.offset])
