"""The batches that a leader of the quorum sent, as entries for the raft core.

The core never looks into a batch: `Entry.data` is its bytes, `Entry.control` what its control records tell of
the quorum. Batches are checked here, before anything of them is believed.
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
    """The whole batches, each with a view of its bytes; the last one may be cut short, and is left out then.
    CorruptMessage where one is whole and wrong."""
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
