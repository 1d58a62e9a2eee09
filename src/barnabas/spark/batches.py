"""Applies a function to each value of an Arrow batch: a bad value only affects its own row.

Decoders call a function that returns (schema id, value) or raises BadValue; the values are converted to Arrow
together, and one by one only if that fails. This is the inner loop of Avro and Protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from barnabas.spark.framing import BadValue

_REFUSED = (pa.ArrowException, ArithmeticError, ValueError, TypeError)
_SHOWN_CHARACTERS = 300

Columns = Callable[[list[Any]], pa.Array]


class EncodeError(ValueError):
    """A row cannot be encoded; the message has the reason, and what to do."""


def decoded_batch(
    values: pa.Array, decode: Callable[[bytes], tuple[int | None, Any]], to_array: Columns
) -> pa.Array:
    """Structs of data, error and schema_id; null values are tombstones, with null in all three."""
    rows: list[Any] = []
    ids: list[int | None] = []
    errors: list[str | None] = []
    for value in values.to_pylist():
        schema_id = row = error = None
        if value is not None:
            try:
                schema_id, row = decode(value)
            except BadValue as bad:
                error = _text(bad)
        rows.append(row)
        ids.append(schema_id)
        errors.append(error)
    data = _to_array(rows, errors, to_array)
    return pa.StructArray.from_arrays(
        [data, pa.array(errors, pa.string()), pa.array(ids, pa.int32())], ["data", "error", "schema_id"]
    )


def _to_array(rows: list[Any], errors: list[str | None], to_array: Columns) -> pa.Array:
    """Convert all rows at once; if that fails, the rows that fail alone are bad."""
    try:
        return to_array(rows)
    except _REFUSED:
        for index, row in enumerate(rows):
            try:
                to_array([row])
            except _REFUSED as refused:
                rows[index], errors[index] = None, _text(refused)
        return to_array(rows)


def encoded_batch(
    rows: Sequence[Any],
    encode: Callable[[Any], bytes],
    failures: tuple[type[BaseException], ...],
    *,
    mark: bool,
) -> pa.Array:
    """Binary values, null for null; with `mark`, structs of value and error instead of an EncodeError."""
    values: list[bytes | None] = []
    errors: list[str | None] = []
    for row in rows:
        value = error = None
        if row is not None:
            try:
                value = encode(row)
            except failures as failure:
                error = f"cannot be encoded: {_text(failure)}"
                if not mark:
                    raise EncodeError(
                        f'{error}; the row is {str(row)[:_SHOWN_CHARACTERS]}. With on_error="mark" such rows '
                        "are marked in the column `error`, for dead_letters"
                    ) from failure
        values.append(value)
        errors.append(error)
    array = pa.array(values, pa.binary())
    if not mark:
        return array
    return pa.StructArray.from_arrays([array, pa.array(errors, pa.string())], ["value", "error"])


def written_type(kind: pa.DataType) -> pa.DataType:
    """The type that encoders take: times are the numbers that hold them, maps are lists of entries.

    Python objects for both are many times slower to make.
    """
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([_written_field(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.list_(pa.struct([kind.key_field, _written_field(kind.item_field)]))
    if pa.types.is_list(kind):
        return pa.list_(_written_field(kind.value_field))
    return kind


def _written_field(field: pa.Field) -> pa.Field:
    return field.with_type(written_type(field.type))


def _text(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text[:_SHOWN_CHARACTERS]
