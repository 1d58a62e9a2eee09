"""Avro to columns and back: fastavro a row at a time, Arrow before and after it, in Spark's Python workers.

A value is good if it decodes to its last byte. A bad value only affects its own row: errors become the column
`error`, and a batch that Arrow refuses as a whole (a time that no timestamp can hold) is converted row by
row. A row that cannot be *encoded* fails the query, unless it is to be marked: a null in its place would be a
tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import Any, Literal, NamedTuple

import fastavro
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type

from barnabas.spark.avro_schema import AvroSchemaError, Schema, avro_type, canonical, derive_schema
from barnabas.spark.batches import decoded_batch, encoded_batch, written_type
from barnabas.spark.codec_columns import add_decoded, put_encoded, type_of
from barnabas.spark.framing import BadValue, Framed, frame, looks_framed, unframe

# fastavro's errors for bytes that do not fit the schema
_BAD = (
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    fastavro.read.SchemaResolutionError,
)


def decode_avro(
    df: DataFrame,
    schema: Schema | None = None,
    column: str = "value",
    *,
    reader_schema: Schema | None = None,
    schemas: Mapping[int, Schema] | None = None,
    framed: Framed = "auto",
) -> DataFrame:
    """Add `data` (of the schema's type), `error` (null for a good value) and `schema_id` (a registry's).

    `schema` is the one with which the values were written; `schemas` has those of framed values by their id.
    All are resolved to `reader_schema`, by default `schema`. With framed="auto" a value is framed if it
    begins with a frame and decodes without it; pass True or False if that is known.
    """
    reader = reader_schema if reader_schema is not None else schema
    if reader is None:
        raise AvroSchemaError("decode_avro needs a schema, or reader_schema beside schemas")
    spec = DecodeSpec(
        None if schema is None else canonical(schema),
        canonical(reader),
        None if schemas is None else tuple((number, canonical(each)) for number, each in schemas.items()),
        framed,
    )
    _decoder(spec)  # report an invalid schema here, not in a task

    def decode(values: pa.Array) -> pa.Array:
        return decode_values(values, spec)

    return add_decoded(df, column, decode, avro_type(reader).spark)


def encode_avro(
    df: DataFrame,
    schema: Schema | None = None,
    column: str | Sequence[str] = "data",
    *,
    schema_id: int | None = None,
    on_error: Literal["fail", "mark"] = "fail",
) -> DataFrame:
    """Replace a struct column (or several columns, packed into one) by `value`: its Avro bytes.

    Without a schema it is derived (`avro_schema_of`); with `schema_id` the value is framed for a registry. A
    null struct is a tombstone: a null value. Rows marked bad (`error`) keep the value that they came with;
    with on_error="mark" rows that cannot be encoded are marked too.
    """
    wanted = canonical(schema if schema is not None else avro_schema_of(df, column))
    prefix = b"" if schema_id is None else frame(schema_id)

    def encode(values: pa.Array) -> pa.Array:
        return encode_values(values, wanted, prefix, mark=on_error == "mark")

    return put_encoded(df, column, avro_type(wanted).spark, encode, mark=on_error == "mark")


def avro_schema_of(
    df: DataFrame, column: str | Sequence[str] = "data", name: str = "Record"
) -> dict[str, Any]:
    """The Avro schema that `encode_avro` derives for a struct column, or for several columns."""
    return derive_schema(type_of(df, column), name)


class DecodeSpec(NamedTuple):
    """The parameters of a decoder in a task; texts, so that it is small, and comparable."""

    writer: str | None
    reader: str
    by_id: tuple[tuple[int, str], ...] | None
    framed: Framed


def decode_values(values: pa.Array, spec: DecodeSpec) -> pa.Array:
    """Decode a batch of binary values into structs of data, error and schema_id."""
    kind = avro_type_of(spec.reader)
    target = to_arrow_type(kind.spark, timezone="UTC")

    def to_array(rows: list[Any]) -> pa.Array:
        return pa.array(rows, kind.arrow).cast(target)

    return decoded_batch(values, _decoder(spec), to_array)


def encode_values(values: pa.Array, schema: str, prefix: bytes, *, mark: bool) -> pa.Array:
    """Encode a batch of structs into binary values; with `mark`, into structs of value and error."""
    kind = avro_type_of(schema)
    # timestamps in milliseconds are truncated
    rows = values.cast(kind.arrow, safe=False).cast(written_type(kind.arrow)).to_pylist()
    storage, write = kind.storage_to_write, fastavro.schemaless_writer

    def encode(row: Any) -> bytes:
        out = BytesIO()
        out.write(prefix)
        write(out, storage, row)
        return out.getvalue()

    return encoded_batch(rows, encode, _BAD, mark=mark)


avro_type_of = cache(avro_type)


@cache
def _decoder(spec: DecodeSpec) -> Callable[[bytes], tuple[int | None, Any]]:
    """A function from bytes to schema id and value; it raises BadValue for bad bytes."""
    by_id = None if spec.by_id is None else {n: _Reader(each, spec.reader) for n, each in spec.by_id}
    default = None if spec.writer is None else _Reader(spec.writer, spec.reader)

    def framed(value: bytes) -> tuple[int, Any]:
        schema_id, body = unframe(value)
        reader = default if by_id is None else by_id.get(schema_id or 0)
        if reader is None:
            known = ", ".join(map(str, sorted(by_id or ())))
            raise BadValue(f"schema id {schema_id} is not among those given: {known}")
        return schema_id or 0, reader.read(body)

    def plain(value: bytes) -> tuple[None, Any]:
        if default is None:
            raise BadValue("no registry frame, and no schema for values without")
        return None, default.read(value)

    def either(value: bytes) -> tuple[int | None, Any]:
        if not looks_framed(value):
            return plain(value)
        try:
            return framed(value)
        except BadValue as error:
            try:
                return plain(value)
            except BadValue:
                raise error from None

    return either if spec.framed == "auto" else framed if spec.framed else plain


class _Reader:
    """Reads values of one schema, resolved to another if the two differ."""

    def __init__(self, writer: str, reader: str) -> None:
        self._reader = avro_type_of(reader)
        self._writer = avro_type_of(writer)
        self._resolves = writer != reader

    def read(self, value: bytes) -> Any:
        stream = BytesIO(value)
        try:
            made = self._resolved(stream) if self._resolves else _read(stream, self._reader.storage)
        except _BAD as error:
            raise BadValue(f"not Avro of {self._writer.name}: {_why(error)}") from error
        left = len(value) - stream.tell()
        if left:
            raise BadValue(f"not Avro of {self._writer.name}: {left} bytes are left over")
        return made

    def _resolved(self, stream: BytesIO) -> Any:
        """Decode with fastavro's own resolution; union members are identified by writing the value once
        more."""
        reader = self._reader
        if not reader.has_members:
            return _read(stream, self._writer.plain, reader.plain)
        value = _read(stream, self._writer.plain, reader.plain, return_named_type=True)
        again = BytesIO()
        fastavro.schemaless_writer(again, reader.plain, value)
        again.seek(0)
        return _read(again, reader.storage)


_read: Callable[..., Any] = fastavro.schemaless_reader


def _why(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return "it ends too early"
    if isinstance(error, IndexError):
        return "a union or an enum has no such index"
    return f"{type(error).__name__}: {error}"
