"""Arrow tables as batches for a producer: columns -> kernel -> batches, without a Python object for any row.

Columns, by name: `value`, and optionally `key`, `headers` (a list of structs of key and value), `topic`,
`partition` and `timestamp`. All may be null but the topic. Rows are grouped by topic and partition, in their
order within each. A row without a partition goes to that of its key; a row without a key may go to any: all
such rows of a piece that has other rows, too, go to the same one, or else they would not keep the table's
order.

A table is split into pieces of some megabytes; within a piece the partitions take turns, one batch each, so
that all of them are written to at the same time. If a piece has rows for one partition only, they are encoded
in place; otherwise the kernel sorts row numbers, and the rows themselves are not moved either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from barnabas.client.errors import BadTable, NoSuchPartition, RecordTooLarge
from barnabas.records import kernel
from barnabas.records.builder import compress_batch
from barnabas.records.columnar import Encoder
from barnabas.records.columns import BadColumn, Columns, Memory
from barnabas.records.compression import Codec

PIECE_BYTES = 8 * 1024 * 1024
COLUMNS = ("value", "key", "headers", "topic", "partition", "timestamp")


class TopicRows(NamedTuple):
    """Rows for one topic."""

    topic: str
    columns: Columns
    partition: pa.Array | None  # int32, null if the key decides


class RowBatch(NamedTuple):
    """A batch of rows; without a partition if any will do."""

    partition: int | None
    data: bytearray
    rows: int


class BatchLimits(NamedTuple):
    """Limits of batches; see ProducerConfig."""

    batch_bytes: int
    max_request_bytes: int
    codec: Codec
    is_transactional: bool


def rows_by_topic(table: pa.Table | pa.RecordBatch, topic: str | None, now_ms: int) -> Iterator[TopicRows]:
    """The rows of a table, in pieces of one topic each; `topic`, if given, is that of all rows."""
    _check(table.schema, topic)
    batches = [table] if isinstance(table, pa.RecordBatch) else table.to_batches()
    for piece in _pieces(batches):
        if topic is not None:
            yield _rows(piece, topic, now_ms)
        else:
            for name, some in _topics(piece):
                yield _rows(some, name, now_ms)


def row_batches(
    rows: TopicRows, partitions: int, limits: BatchLimits, choose: Callable[[], int]
) -> Iterator[RowBatch]:
    """The batches of these rows, with the partitions taking turns.

    `choose` returns the partition for rows without one, in a piece where other rows have one.
    """
    encoder, runs = _runs(rows, partitions, choose)
    turns = deque(runs)
    while turns:
        partition, start, stop = turns.popleft()
        data, row = encoder.batch(
            start, stop, limit_bytes=limits.batch_bytes, transactional=limits.is_transactional
        )
        if len(data) > limits.max_request_bytes:  # it has a single row then
            raise RecordTooLarge(
                f"a row for {rows.topic} takes {len(data)} bytes, more than max_request_bytes="
                f"{limits.max_request_bytes} allow; raise that (max.request.size), and the topic's "
                "max.message.bytes"
            )
        yield RowBatch(partition, compress_batch(data, limits.codec), row - start)
        if row < stop:
            turns.append((partition, row, stop))


# ---- pieces -----------------------------------------------------------------------------------------------


def _check(schema: pa.Schema, topic: str | None) -> None:
    if unknown := [name for name in schema.names if name not in COLUMNS]:
        raise BadTable(f"no record has a {unknown[0]!r}: the columns may be {', '.join(COLUMNS)}")
    if twice := [name for name in COLUMNS if schema.names.count(name) > 1]:
        raise BadTable(f"there is more than one column {twice[0]!r}")
    if "value" not in schema.names:
        raise BadTable(f"there is no column 'value' among {', '.join(schema.names) or 'none at all'}")
    if topic is None and "topic" not in schema.names:
        raise BadTable("to which topic? Name one, or have a column 'topic'")


def _pieces(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in record batches of about PIECE_BYTES: small neighbours are merged."""
    gathered: list[pa.RecordBatch] = []
    gathered_bytes = 0
    for batch in batches:
        for part in _halved(batch):
            if gathered and gathered_bytes + part.nbytes > PIECE_BYTES:
                yield _together(gathered)
                gathered, gathered_bytes = [], 0
            gathered.append(part)
            gathered_bytes += part.nbytes
    if gathered:
        yield _together(gathered)


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    if rows > 1 and batch.nbytes > PIECE_BYTES:
        halves = batch.slice(0, rows // 2), batch.slice(rows // 2)
        if sum(half.nbytes for half in halves) < 1.5 * batch.nbytes:
            for half in halves:
                yield from _halved(half)
            return
        # most of the size is shared (a dictionary): halving gains nothing
    if rows:
        yield batch


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _topics(piece: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    column = _dictionary(piece.column("topic"))
    if column.null_count:
        raise BadTable(f"{column.null_count} rows have no topic (null); name one for all, or fill the column")
    indices, names = column.indices.cast(pa.int32()), column.dictionary.to_pylist()
    if not all(isinstance(name, str) for name in names):
        raise BadTable(f"column 'topic' must hold text, not {piece.column('topic').type}")
    order, ends = kernel.group_rows(_memory(indices), len(indices), len(names))
    numbers = pa.Array.from_buffers(pa.int32(), len(indices), [None, pa.py_buffer(order)])
    starts = memoryview(ends).cast("i")
    rest = piece if len(names) == 1 else _takeable(piece)
    for group, name in enumerate(names):
        count = starts[group + 1] - starts[group]
        if count == len(indices):
            yield name, rest
        elif count:
            yield name, rest.take(numbers.slice(starts[group], count))


def _dictionary(column: pa.Array) -> pa.DictionaryArray:
    """The same column with unique values in the dictionary, and without nulls in it."""
    if pa.types.is_dictionary(column.type):
        values = column.dictionary.to_pylist()
        if len(set(values)) == len(values) and None not in values:
            return column
        column = column.dictionary_decode()
    return column.dictionary_encode()


def _takeable(piece: pa.RecordBatch) -> pa.RecordBatch:
    """The columns beside the topic, without view types, which Arrow's `take` does not support."""
    rest = piece.drop_columns(["topic"])
    fields = [field.with_type(_without_views(field.type)) for field in rest.schema]
    return rest if fields == list(rest.schema) else rest.cast(pa.schema(fields))


def _without_views(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    return kind


def _rows(piece: pa.RecordBatch, topic: str, now_ms: int) -> TopicRows:
    try:
        columns = Columns.from_arrow(piece, now_ms=now_ms)
    except BadColumn as error:
        raise BadTable(str(error)) from None
    partition = piece.column("partition") if "partition" in piece.schema.names else None
    if partition is not None:
        if not (pa.types.is_integer(partition.type) or pa.types.is_null(partition.type)):
            raise BadTable(f"column 'partition' must hold whole numbers, not {partition.type}")
        try:
            partition = partition if partition.type == pa.int32() else partition.cast(pa.int32())
        except pa.ArrowInvalid as error:
            raise BadTable(f"column 'partition': {error}") from None
    return TopicRows(topic, columns, partition)


# ---- rows by partition ------------------------------------------------------------------------------------

Run = tuple[int | None, int, int]  # a partition, and the range of its rows in the encoder's order


def _runs(rows: TopicRows, partitions: int, choose: Callable[[], int]) -> tuple[Encoder, list[Run]]:
    columns, count = rows.columns, rows.columns.rows
    is_any = rows.partition is None and columns.key.nulls == count
    if is_any or (rows.partition is None and partitions == 1):
        return Encoder(columns), [(None if is_any else 0, 0, count)]
    try:
        numbers = _partitions(rows, partitions)
        order, ends = kernel.group_rows(numbers, count, partitions)
        any_count = memoryview(ends).cast("i")[0]
        if any_count == count:
            return Encoder(columns), [(None, 0, count)]
        if any_count:
            order, ends = kernel.group_rows(_placed(numbers, count, choose()), count, partitions)
    except ValueError:
        raise _no_such_partition(rows, partitions) from None
    starts = memoryview(ends).cast("i")
    runs: list[Run] = [
        (partition, starts[partition], starts[partition + 1])
        for partition in range(partitions)
        if starts[partition] < starts[partition + 1]
    ]
    return Encoder(columns, None if len(runs) == 1 else order), runs


def _partitions(rows: TopicRows, partitions: int) -> Memory:
    """The partition of every row as int32, -1 for any; ValueError if one is negative."""
    columns, named = rows.columns, rows.partition
    if named is None:
        return kernel.partition_column(columns.key, columns.rows, partitions)
    import pyarrow.compute as pc  # type: ignore[import-untyped]  # a tenth of a second

    if pc.any(pc.less(named, 0)).as_py():
        raise ValueError
    if named.null_count == 0:
        return _memory(named)
    by_key = kernel.partition_column(columns.key, columns.rows, partitions)
    return _memory(pc.coalesce(named, _int32(by_key, columns.rows)))


def _placed(numbers: Memory, count: int, partition: int) -> Memory:
    """The same with `partition` in place of -1."""
    import pyarrow.compute as pc

    array = _int32(numbers, count)
    return _memory(pc.if_else(pc.less(array, 0), pa.scalar(partition, pa.int32()), array))


def _int32(numbers: Memory, count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(numbers)])


def _no_such_partition(rows: TopicRows, partitions: int) -> Exception:
    assert rows.partition is not None
    named = [each for each in rows.partition.to_pylist() if each is not None]
    bad = next(each for each in named if not 0 <= each < partitions)
    return NoSuchPartition(f"{rows.topic} has {partitions} partitions, no number {bad}")


def _memory(array: pa.Array) -> memoryview:
    """The values of an int32 array without nulls."""
    if not len(array):
        return memoryview(b"").cast("i")
    return (
        memoryview(array.buffers()[1]).cast("B")[4 * array.offset : 4 * (array.offset + len(array))].cast("i")
    )
