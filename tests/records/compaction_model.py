"""Compaction as a dictionary and a few lists of records would do it, and one driver for both kernels.

The model knows batches only as what `read_batch` takes out of them and `build_batch` puts into them.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.records.batch import MAX_TIMESTAMP_AT, BatchHeader
from barnabas.records.builder import build_batch, compress_batch
from barnabas.records.reader import read_batch, read_batches, records_section
from barnabas.records.record import Record
from tests.support.batches import patched

HASH_KEY = bytes(range(16))


class Order(NamedTuple):
    """What the caller of a filter says of one batch."""

    discard_records: bool = False
    keep_empty: bool = False
    wants_horizon: bool = False


@dataclass
class Round:
    """Everything that decides what stays."""

    first_offset: int = 0
    limit: int = 1 << 30
    kept_offsets: list[int] = field(default_factory=list)
    end_offset: int = -1
    now_ms: int = 1_000
    delete_retention_ms: int = 100
    # by base offset; only batches that are compressed, transactional or control are asked about
    orders: Mapping[int, Order] = field(default_factory=dict)

    def order(self, header: BatchHeader) -> Order:
        return self.orders.get(header.base_offset, Order()) if is_special(header) else Order()


class Outcome(NamedTuple):
    """What a round did: the map in the end, and the log that is left."""

    size: int
    latest_offset: int
    is_full: bool
    found: dict[bytes, int]
    log: bytes
    counts: tuple[int, int, int, int]


def is_special(header: BatchHeader) -> bool:
    return bool(header.codec) or header.is_transactional or header.is_control


# ---- the model --------------------------------------------------------------------------------------------


def expected(log: bytes, plan: Round, keys: list[bytes]) -> Outcome:
    """What a round must do."""
    latest: dict[bytes, int] = {}
    seen, is_full = note_all(log, plan, latest)
    left = b""
    batches_read = batches_kept = records_read = records_kept = 0
    for header, position in read_batches(log):
        batch, kept = filtered(log, position, header, plan, latest, seen)
        left += batch
        batches_read += 1
        batches_kept += batch != b""
        records_read += header.record_count
        records_kept += kept
    counts = (batches_read, batches_kept, records_read, records_kept)
    return Outcome(len(latest), seen, is_full, {key: latest.get(key, -1) for key in keys}, left, counts)


def note_all(log: bytes, plan: Round, latest: dict[bytes, int]) -> tuple[int, bool]:
    """Fill the dictionary: (the offset up to which everything was seen, whether it got full)."""
    seen = -1
    for header, position in read_batches(log):
        if not header.is_control and not plan.order(header).discard_records:
            for record in read_batch(log, position, header):
                if record.key is not None and record.offset >= plan.first_offset:
                    if len(latest) >= plan.limit:
                        return seen, True
                    latest[record.key] = seen = record.offset
        if header.last_offset >= plan.first_offset:
            seen = header.last_offset
    return seen, False


def filtered(
    log: bytes, position: int, header: BatchHeader, plan: Round, latest: dict[bytes, int], seen: int
) -> tuple[bytes, int]:
    """What is left of one batch, and how many records that is."""
    order = plan.order(header)
    records = list(read_batch(log, position, header))
    kept = [
        record
        for record in records
        if not order.discard_records and stays(record, header, plan.now_ms, latest, seen)
    ]
    if not kept:
        must_stay = order.keep_empty or header.last_offset in plan.kept_offsets
        return (empty(header) if must_stay or header.next_offset == plan.end_offset else b""), 0
    horizon_ms = header.delete_horizon_ms
    if horizon_ms is None and (order.wants_horizon or any(record.value is None for record in kept)):
        horizon_ms = plan.now_ms + plan.delete_retention_ms
    if len(kept) == len(records) and horizon_ms == header.delete_horizon_ms:
        return log[position : position + header.size_bytes], len(kept)
    return rebuilt(header, kept, header.codec, horizon_ms), len(kept)


def stays(record: Record, header: BatchHeader, now_ms: int, latest: dict[bytes, int], seen: int) -> bool:
    if header.is_control or record.offset > seen:
        return True
    if record.key is None or latest.get(record.key, -1) > record.offset:
        return False
    is_over = header.delete_horizon_ms is not None and header.delete_horizon_ms <= now_ms
    return record.value is not None or not is_over


def rebuilt(header: BatchHeader, records: list[Record], codec: int, horizon_ms: int | None) -> bytes:
    batch = build_batch(
        records,
        base_offset=header.base_offset,
        keep_offsets=True,
        last_offset=header.last_offset,
        codec=codec,
        append_time_ms=header.max_timestamp if header.is_log_append_time else None,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        leader_epoch=header.leader_epoch,
        delete_horizon_ms=horizon_ms,
    )
    return bytes(batch)


def empty(header: BatchHeader) -> bytes:
    return bytes(patched(rebuilt(header, [], 0, None), MAX_TIMESTAMP_AT, "q", header.max_timestamp))


# ---- the kernel -------------------------------------------------------------------------------------------


def compact(kernel: Any, log: Any, plan: Round, keys: list[bytes], memory_bytes: int = 24_000) -> Outcome:
    """The same round by one of the kernels, driven as the cleaner drives it."""
    offsets = kernel.OffsetMap(memory_bytes, HASH_KEY)
    is_full = note_by(offsets, log, plan)
    keep = kernel.BatchFilter(
        offsets, array("q", plan.kept_offsets), plan.end_offset, plan.now_ms, plan.delete_retention_ms
    )
    filter_by(keep, log, plan)
    counts = (keep.batches_read, keep.batches_kept, keep.records_read, keep.records_kept)
    gathered_bytes, left = keep.gathered_bytes, keep.take()
    assert gathered_bytes == len(left)
    assert keep.gathered_bytes == len(keep.take()) == 0
    found = {key: offsets.get(key) for key in keys}
    return Outcome(offsets.size, offsets.latest_offset, is_full, found, bytes(left), counts)


def note_by(offsets: Any, log: Any, plan: Round) -> bool:
    position = 0
    while True:
        position, header, is_full = offsets.note(log, position, len(log), plan.first_offset, plan.limit)
        if header is None:
            return bool(is_full)
        if header.is_control or plan.order(header).discard_records:
            if header.last_offset >= plan.first_offset:
                offsets.advance(header.last_offset)
        elif offsets.note_section(
            *records_section(log, position, header), header, plan.first_offset, plan.limit
        ):
            return True
        position += header.size_bytes


def filter_by(keep: Any, log: Any, plan: Round) -> None:
    position = 0
    while True:
        position, header = keep.run(log, position, len(log))
        if header is None:
            return
        order = plan.order(header)
        section = (b"", 0, 0) if order.discard_records else records_section(log, position, header)
        left = keep.batch(log, position, header, *section, **order._asdict())
        if left is not None:
            compressed = compress_batch(left, header.codec)
            keep.copy(compressed, 0, len(compressed))
        position += header.size_bytes
