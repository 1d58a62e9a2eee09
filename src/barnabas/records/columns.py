"""Records as columns, in the memory layout of Apache Arrow: many records, no Python object for any.

A `Columns` is buffers and counts. Numbers are 64-bit in native byte order. A binary column has, as in Arrow,
an optional validity bitmap, 32-bit ends (one more than rows, starting with 0) and the bytes; the headers of a
row are a slice of two more such columns. `to_arrow` and `from_arrow` share the memory without a copy, and are
all that needs pyarrow. columnar.py turns batches into columns and back.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

# Anything with the buffer protocol: the kernel's own memory, bytes, or Arrow's buffers.
Memory = Any


class BadColumn(ValueError):
    """A column of an Arrow table that cannot be part of records."""


class BinaryColumn(NamedTuple):
    """Bytes or nulls; row 0 is at index `first` of the bitmap and the ends."""

    valid: Memory | None
    ends: Memory
    data: Memory
    nulls: int
    first: int = 0


class HeaderColumn(NamedTuple):
    """The headers of row i are those from `ends[i]` to `ends[i + 1]`."""

    ends: Memory
    names: BinaryColumn
    values: BinaryColumn


class Columns(NamedTuple):
    """Records as columns. Encoding needs no offsets, and takes None for no headers at all."""

    rows: int
    offset: Memory
    timestamp: Memory
    key: BinaryColumn
    value: BinaryColumn
    headers: HeaderColumn | None

    def to_arrow(self) -> pa.RecordBatch:
        """The same memory as an Arrow record batch: offset, timestamp, key, value, headers."""
        import pyarrow as pa

        names = ["offset", "timestamp", "key", "value"] + ["headers"] * (self.headers is not None)
        return pa.RecordBatch.from_arrays([self.array(name) for name in names], names)

    def array(self, name: str) -> pa.Array:
        """One column as an Arrow array."""
        import pyarrow as pa

        match name:
            case "offset":
                return _number_array(pa.int64(), self.rows, self.offset)
            case "timestamp":
                return _number_array(pa.timestamp("ms", tz="UTC"), self.rows, self.timestamp)
            case "key":
                return _binary_array(self.key, self.rows)
            case "value":
                return _binary_array(self.value, self.rows)
            case "headers" if self.headers is not None:
                return _header_array(self.headers, self.rows)
        raise KeyError(name)

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch, *, now_ms: int = -1) -> Columns:
        """The columns of an Arrow record batch: value, and if present key, timestamp and headers.

        Rows without a timestamp get `now_ms`. BadColumn if a column has the wrong type.
        """
        rows = batch.num_rows
        names = set(batch.schema.names)
        nulls = BinaryColumn(bytes((rows + 7) // 8), bytes(4 * rows + 4), b"", rows)
        return cls(
            rows,
            b"",
            _timestamps(batch.column("timestamp") if "timestamp" in names else None, rows, now_ms),
            _binary_column(batch.column("key"), "key") if "key" in names else nulls,
            _binary_column(batch.column("value"), "value"),
            _header_column(batch.column("headers")) if "headers" in names else None,
        )


def _number_array(kind: pa.DataType, rows: int, data: Memory) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def _binary_array(column: BinaryColumn, rows: int) -> pa.Array:
    import pyarrow as pa

    valid = None if column.valid is None else pa.py_buffer(column.valid)
    buffers = [valid, pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    nulls = column.nulls if column.first == 0 else -1
    return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls, column.first)


def _header_array(column: HeaderColumn, rows: int) -> pa.Array:
    import pyarrow as pa

    count = int.from_bytes(memoryview(column.ends).cast("B")[-4:], sys.byteorder)
    fields = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
    names = _as_text(_binary_array(column.names, count))
    headers = pa.StructArray.from_arrays([names, _binary_array(column.values, count)], fields=fields)
    kind = pa.list_(pa.field("item", headers.type, nullable=False))
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(column.ends)], 0, 0, [headers])


def _as_text(names: pa.Array) -> pa.Array:
    """Header names are text only by convention: invalid UTF-8 gets replacement characters."""
    import pyarrow as pa

    if not len(names):  # a cast makes Arrow load much more of itself
        return pa.array([], pa.string())
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


def _binary_column(array: pa.Array, name: str) -> BinaryColumn:
    array = _as_binary(array, name)
    valid, ends, data = array.buffers()
    if not len(array):
        return BinaryColumn(None, bytes(4), b"", 0)
    return BinaryColumn(
        valid if array.null_count else None, ends, data or b"", array.null_count, array.offset
    )


def _as_binary(array: pa.Array, name: str) -> pa.Array:
    """Bytes with 32-bit ends; a cast, which makes Arrow load much more of itself, only if needed."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind, types = array.type, pa.types
    if types.is_binary(kind):
        return array
    if types.is_string(kind):
        return array.view(pa.binary())
    is_wide = types.is_large_binary(kind) or types.is_large_string(kind) or types.is_fixed_size_binary(kind)
    is_view = types.is_binary_view(kind) or types.is_string_view(kind)
    if is_wide or is_view or types.is_null(kind):
        return array.cast(pa.binary())
    raise BadColumn(f"column {name!r} must hold bytes or text, not {kind}")


def _timestamps(array: pa.Array | None, rows: int, now_ms: int) -> Memory:
    import pyarrow as pa

    if array is None:
        return now_ms.to_bytes(8, sys.byteorder, signed=True) * rows
    kind, types = array.type, pa.types
    if types.is_timestamp(kind):
        array = array.cast(pa.timestamp("ms", kind.tz), safe=False).view(pa.int64())
    elif types.is_integer(kind) or types.is_null(kind):
        try:
            array = array.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise BadColumn(f"column 'timestamp': {error}") from None
    else:
        raise BadColumn(f"column 'timestamp' must hold timestamps, or milliseconds, not {kind}")
    if array.null_count:
        array = array.fill_null(now_ms)
    data = array.buffers()[1]
    return memoryview(data)[8 * array.offset : 8 * (array.offset + rows)] if rows else b""


def _header_column(array: pa.Array) -> HeaderColumn | None:
    import pyarrow as pa

    if pa.types.is_null(array.type):
        return None
    _check_headers(array.type)
    if not pa.types.is_list(array.type):  # its ends are not 32 bits wide, or missing
        array = array.cast(pa.list_(array.type.value_field))
    if array.null_count or array.offset or not len(array):
        # null lists may cover arbitrary values; flattening makes them empty and starts from 0 again
        headers, memory = array.flatten(), _ends_from_zero(array)
    else:
        headers, memory = array.values, array.buffers()[1]
    fields = dict(zip((field.name for field in headers.type), headers.flatten(), strict=True))
    names, values = fields["key"], fields["value"]
    if names.null_count:
        raise BadColumn(f"column 'headers': {names.null_count} headers have no key (null)")
    return HeaderColumn(memory, _binary_column(names, "headers.key"), _binary_column(values, "headers.value"))


def _check_headers(kind: pa.DataType) -> None:
    import pyarrow as pa

    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    is_struct = is_list and pa.types.is_struct(kind.value_type)
    if not is_struct or sorted(field.name for field in kind.value_type) != ["key", "value"]:
        raise BadColumn(f"column 'headers' must hold lists of structs of key and value, not {kind}")


def _ends_from_zero(array: pa.Array) -> Memory:
    """The ends of the flattened lists."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32())
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    return memoryview(ends.buffers()[1])[: 4 * len(ends)]
