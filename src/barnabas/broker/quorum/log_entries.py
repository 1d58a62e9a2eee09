"""Turns batches that a leader of the quorum sent into entries for the raft core.

The core never parses a batch: `Entry.data` is its bytes, `Entry.control` the content of its control records.
Batches are checked here, before any of their content is used.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.core.disk import Buffer
from barnabas.raft.control_records import read_control_batch
from barnabas.raft.control_values import to_control
from barnabas.raft.log_index import Control, Entry
from barnabas.records import kernel
from barnabas.records.batch import HEADER_BYTES, BatchHeader


def entries_of(records: Buffer) -> tuple[Entry, ...]:
    """The complete batches, each with a view of its bytes; a last one that is cut short is left out.
    CorruptMessage if a complete batch is damaged."""
    view = memoryview(records)
    return tuple(_entry(view, position, header) for header, position in _whole_batches(view))


def _whole_batches(view: memoryview) -> Iterator[tuple[BatchHeader, int]]:
    position, end = 0, len(view)
    while end - position >= HEADER_BYTES:
        if BatchHeader.parse(view, position).size_bytes > end - position:
            return
        header = kernel.check_batch(view, position, end)
        yield header, position
        position += header.size_bytes


def _entry(view: memoryview, position: int, header: BatchHeader) -> Entry:
    control: list[Control] = []
    if header.is_control:
        told = (to_control(message) for _, message in read_control_batch(view, position, header))
        control = [each for each in told if each is not None]
    data = view[position : position + header.size_bytes]
    return Entry(header.base_offset, header.last_offset_delta + 1, header.leader_epoch, data, tuple(control))
