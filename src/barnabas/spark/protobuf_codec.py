"""Protobuf to columns and back, in Spark's Python workers: protobuf's own parser, Arrow before and after it.

A value that cannot be parsed, or lacks a field that proto2 requires, only affects its own row: `error` has
the reason. But most bytes are valid messages of most types: Protobuf cannot detect a value of another type if
its fields happen to fit. A registry's frame can, since it names the message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

import pyarrow as pa  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError, EncodeError, Message  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type

from barnabas.spark.batches import decoded_batch, encoded_batch, written_type
from barnabas.spark.codec_columns import add_decoded, put_encoded
from barnabas.spark.framing import (
    BadValue,
    Framed,
    frame,
    looks_framed,
    read_indexes,
    unframe,
    write_indexes,
)
from barnabas.spark.protobuf_schema import (
    MessageSource,
    MessageSpec,
    message_class,
    message_indexes,
    message_spec,
)
from barnabas.spark.protobuf_types import Kind, message_kind

# protobuf's errors for a value that does not fit a field
_BAD = (EncodeError, ValueError, TypeError, LookupError, ArithmeticError)


def decode_protobuf(
    df: DataFrame,
    message: MessageSource,
    column: str = "value",
    *,
    framed: Framed = "auto",
    indexes: Sequence[int] | None = None,
) -> DataFrame:
    """Add `data` (a struct of the message's fields), `error` (null for a good value) and `schema_id`.

    `message` is a class, or a descriptor set (bytes, or the path of a file) and the message's full name. No
    message begins with a zero byte, so a registry's frame is recognised by it. `indexes` is the message's
    place in the registry's file, if that differs from this one.
    """
    spec = message_spec(message)
    expected = _indexes(spec, indexes)

    def decode(values: pa.Array) -> pa.Array:
        return decode_values(values, spec, framed, expected)

    return add_decoded(df, column, decode, _kind(spec).spark)


def encode_protobuf(
    df: DataFrame,
    message: MessageSource,
    column: str | Sequence[str] = "data",
    *,
    schema_id: int | None = None,
    indexes: Sequence[int] | None = None,
    on_error: Literal["fail", "mark"] = "fail",
) -> DataFrame:
    """Replace a struct column (or several columns, packed into one) by `value`: the message's bytes.

    Fields that are null or missing are not set. With `schema_id` the value is framed for a registry. A null
    struct is a tombstone: a null value. Rows marked bad (`error`) keep the value that they came with; with
    on_error="mark" rows that cannot be encoded are marked too.
    """
    spec = message_spec(message)
    prefix = b"" if schema_id is None else frame(schema_id) + write_indexes(_indexes(spec, indexes))

    def encode(values: pa.Array) -> pa.Array:
        return encode_values(values, spec, prefix, mark=on_error == "mark")

    return put_encoded(df, column, _kind(spec).spark, encode, mark=on_error == "mark")


def _indexes(spec: MessageSpec, given: Sequence[int] | None) -> tuple[int, ...]:
    return message_indexes(message_class(spec).DESCRIPTOR) if given is None else tuple(given)


@cache
def _kind(spec: MessageSpec) -> Kind:
    return message_kind(message_class(spec).DESCRIPTOR)


def decode_values(values: pa.Array, spec: MessageSpec, framed: Framed, indexes: tuple[int, ...]) -> pa.Array:
    """Decode a batch of binary values into structs of data, error and schema_id."""
    kind = _kind(spec)
    target = to_arrow_type(kind.spark, timezone="UTC")

    def to_array(messages: list[Any]) -> pa.Array:
        return kind.to_array(messages).cast(target)

    return decoded_batch(values, _decoder(spec, framed, indexes), to_array)


def encode_values(values: pa.Array, spec: MessageSpec, prefix: bytes, *, mark: bool) -> pa.Array:
    """Encode a batch of structs into binary values; with `mark`, into structs of value and error."""
    to_message = _kind(spec).to_proto
    assert to_message is not None
    rows = values.cast(written_type(values.type)).to_pylist()

    def encode(row: Any) -> bytes:
        # the same bytes for the same row, maps included
        body: bytes = to_message(row).SerializeToString(deterministic=True)
        return prefix + body

    return encoded_batch(rows, encode, _BAD, mark=mark)


@cache
def _decoder(
    spec: MessageSpec, framed: Framed, indexes: tuple[int, ...]
) -> Callable[[bytes], tuple[int | None, Message]]:
    """A function from bytes to schema id and message; it raises BadValue for bad bytes."""
    parse, name = message_class(spec).FromString, spec.name

    def message(body: bytes) -> Message:
        try:
            parsed = parse(body)
        except DecodeError as error:
            raise BadValue(f"not a {name}: {error}") from error
        if not parsed.IsInitialized():
            missing = ", ".join(parsed.FindInitializationErrors())
            raise BadValue(f"not a {name}: required fields are missing: {missing}")
        return parsed

    def in_frame(value: bytes) -> tuple[int | None, Message]:
        schema_id, rest = unframe(value)
        found, body = read_indexes(rest)
        if found != indexes:
            raise BadValue(f"not a {name}, which is message {indexes} of its file: the frame says {found}")
        return schema_id, message(body)

    def plain(value: bytes) -> tuple[None, Message]:
        return None, message(value)

    def either(value: bytes) -> tuple[int | None, Message]:
        return in_frame(value) if looks_framed(value) else plain(value)

    return either if framed == "auto" else in_frame if framed else plain
