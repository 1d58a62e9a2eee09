"""Converts Arrow record batches to the one schema that Spark accepts: it compares schemas exactly.

Columns and their types are those of Spark's own Kafka connector; a record without headers has null there.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa  # type: ignore[import-untyped]

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))
_TIMESTAMP = pa.timestamp("us", tz="UTC")


def client_name(column: str) -> str:
    """The client's name of a column."""
    return "timestamp_type" if column == "timestampType" else column


def to_rows(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """A record batch of the client with these columns, in Spark's types."""
    return pa.RecordBatch.from_arrays([_column(batch, name) for name in columns], list(columns))


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name == "timestamp":
        return batch.column(name).cast(_TIMESTAMP)
    if name == "headers":
        return _headers(batch.column(name))
    return batch.column(client_name(name))


def _headers(lists: pa.Array) -> pa.Array:
    """The same memory with Spark's names, and null for an empty list."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]  # a tenth of a second for every worker

    keys, values = lists.values.flatten()
    headers = pa.StructArray.from_arrays([keys, values], fields=list(_HEADER))
    is_there = pc.greater(pc.list_value_length(lists), 0)
    buffers = [is_there.buffers()[1], lists.buffers()[1]]
    return pa.Array.from_buffers(_HEADERS, len(lists), buffers, children=[headers])
