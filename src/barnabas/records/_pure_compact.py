"""Compaction in plain Python: the twin of _offset_map.pxi and _compact.pxi.

A record is kept if its offset is beyond the map's latest one. Otherwise it is kept if it has a key for which
the map has no later offset, and is not an expired tombstone. A batch that loses nothing is kept byte for
byte. Any other is rebuilt with the same offsets and sequences, so that producers and readers find their
positions; if tombstones remain, their delete horizon (KIP-534) is set once, in place of the base timestamp.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b

from barnabas.core.disk import Buffer
from barnabas.records import _faults
from barnabas.records._pure import (
    RecordView,
    check_range,
    crc32c,
    frame_and_field_fault,
    optional_bytes,
    to_int64,
    walk,
    write_varlong,
)
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_AT,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)

SLOT_BYTES = 24
HASH_BYTES = 16
MAX_OFFSET = 0x7FFFFFFFFFFFFFFE
_MAX_INT64 = 0x7FFFFFFFFFFFFFFF
_MAX_BATCH_LENGTH = 0x7FFFFFFF
_LASTING_FLAGS = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG


def _header_at(view: memoryview, position: int, end: int) -> BatchHeader | None:
    """The header of the batch at `position`, or None if the batch is incomplete."""
    fault, header = frame_and_field_fault(view, position, end, True)
    if fault == _faults.SHORT:
        return None
    if header is None or fault != _faults.OK:
        raise _faults.batch_error(fault, position)
    return header


class OffsetMap:
    """The latest offset of every key, in as many slots as the compiled map would have in the same memory.

    Here a slot is a dictionary entry and takes more than 24 bytes. Keys are identified by a keyed hash of the
    same width. Callers cannot see which hash it is; this one is quick to call from Python.
    """

    def __init__(self, memory_bytes: int, hash_key: bytes) -> None:
        if len(hash_key) != HASH_BYTES:
            raise ValueError("the hash key must be 16 bytes")
        if memory_bytes < SLOT_BYTES:
            raise ValueError("the memory does not hold a single slot")
        self.slots = memory_bytes // SLOT_BYTES
        self.latest_offset = -1
        self._hash_key = hash_key
        self._offsets: dict[bytes, int] = {}

    @property
    def size(self) -> int:
        return len(self._offsets)

    def clear(self) -> None:
        self._offsets = {}
        self.latest_offset = -1

    def advance(self, offset: int) -> None:
        """Note that everything up to `offset` has been seen."""
        self.latest_offset = max(self.latest_offset, offset)

    def _hash(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=HASH_BYTES, key=self._hash_key).digest()

    def put(self, key: bytes, offset: int) -> None:
        """Store the latest offset of `key`."""
        if not 0 <= offset <= MAX_OFFSET:
            raise ValueError("there is no such offset")
        hashed = self._hash(key)
        if len(self._offsets) >= self.slots and hashed not in self._offsets:
            raise ValueError("the map is full")
        self._offsets[hashed] = offset
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """The latest offset of `key`, or -1."""
        return self._offsets.get(self._hash(key), -1)

    def note(
        self, buffer: Buffer, position: int, end: int, first_offset: int, limit: int
    ) -> tuple[int, BatchHeader | None, bool]:
        """Note plain batches: (where it stopped, the header of another kind of batch, whether it is full)."""
        view = check_range(buffer, position, end)
        while position < end and (header := _header_at(view, position, end)) is not None:
            if header.attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG):
                return position, header, False
            if header.last_offset >= first_offset:
                if header.attributes & CODEC_MASK:
                    return position, header, False
                start, stop = position + HEADER_BYTES, position + header.size_bytes
                if self._note_records(view, start, stop, header, first_offset, limit):
                    return position, None, True
            position += header.size_bytes
        return position, None, False

    def note_section(
        self, section: Buffer, start: int, stop: int, header: BatchHeader, first_offset: int, limit: int
    ) -> bool:
        """As `note`, for the records of one batch at `section[start:stop]`; True if the map is full."""
        view = check_range(section, start, stop)
        return self._note_records(view, start, stop, header, first_offset, limit)

    def _note_records(
        self, view: memoryview, start: int, stop: int, header: BatchHeader, first_offset: int, limit: int
    ) -> bool:
        limit = min(limit, self.slots)
        for record in walk(view, start, stop, header):
            offset = header.base_offset + record.offset_delta
            if record.key_size >= 0 and offset >= first_offset:
                if self.size >= limit:
                    return True
                self.put(bytes(view[record.key_at : record.key_at + record.key_size]), offset)
        if header.last_offset >= first_offset:
            self.latest_offset = header.last_offset
        return False


class BatchFilter:
    """The batches that remain after compaction, collected in memory."""

    def __init__(
        self,
        offsets: OffsetMap,
        kept_offsets: bytes | array[int],
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.batches_read = self.batches_kept = self.records_read = self.records_kept = 0
        self._offsets = offsets
        self._kept_offsets = frozenset(memoryview(kept_offsets).cast("B").cast("q"))
        self._end_offset = end_offset
        self._now_ms = now_ms
        # beyond the largest timestamp: never
        self._new_horizon_ms = now_ms + delete_retention_ms
        if self._new_horizon_ms > _MAX_INT64:
            self._new_horizon_ms = NO_TIMESTAMP
        self._gathered = bytearray()

    @property
    def gathered_bytes(self) -> int:
        return len(self._gathered)

    def run(self, buffer: Buffer, position: int, end: int) -> tuple[int, BatchHeader | None]:
        """Filter plain batches: (where it stopped, the header of another kind of batch there)."""
        view = check_range(buffer, position, end)
        while position < end and (header := _header_at(view, position, end)) is not None:
            if header.attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG | CODEC_MASK):
                return position, header
            stop = position + header.size_bytes
            self.batch(view, position, header, view, position + HEADER_BYTES, stop)
            position = stop
        return position, None

    def batch(
        self,
        buffer: Buffer,
        position: int,
        header: BatchHeader,
        section: Buffer,
        start: int,
        stop: int,
        *,
        discard_records: bool = False,
        keep_empty: bool = False,
        wants_horizon: bool = False,
    ) -> bytearray | None:
        """Filter the batch at `position`, its records at `section[start:stop]`.

        What remains is collected. Only a compressed batch that had to be rebuilt is returned, uncompressed:
        the caller compresses it and passes it to `copy`.
        """
        check_range(buffer, position, position + header.size_bytes)
        view = check_range(section, start, stop)
        records = [] if discard_records else list(walk(view, start, stop, header))
        kept = [record for record in records if self._stays(view, record, header)]
        is_empty_kept = not kept and (
            keep_empty or header.last_offset in self._kept_offsets or header.next_offset == self._end_offset
        )
        self.batches_read += 1
        self.records_read += header.record_count
        self.batches_kept += bool(kept) or is_empty_kept
        self.records_kept += len(kept)
        if is_empty_kept:
            self._gathered += _finished(header, bytearray(HEADER_BYTES), 0, NO_TIMESTAMP, 0)
        return self._keep(buffer, position, header, view, kept, wants_horizon) if kept else None

    def _keep(
        self,
        buffer: Buffer,
        position: int,
        header: BatchHeader,
        view: memoryview,
        kept: list[RecordView],
        wants_horizon: bool,
    ) -> bytearray | None:
        horizon_ms = header.delete_horizon_ms
        starts_clock = horizon_ms is None and (wants_horizon or any(record.value_size < 0 for record in kept))
        if len(kept) == header.record_count and not starts_clock:
            self.copy(buffer, position, position + header.size_bytes)
            return None
        if horizon_ms is None:
            horizon_ms = self._new_horizon_ms if starts_clock else NO_TIMESTAMP
        rebuilt = _rebuilt(view, header, kept, horizon_ms)
        if header.attributes & CODEC_MASK:
            return rebuilt
        self._gathered += rebuilt
        return None

    def _stays(self, view: memoryview, record: RecordView, header: BatchHeader) -> bool:
        offset = header.base_offset + record.offset_delta
        if header.is_control or offset > self._offsets.latest_offset:
            return True
        key = optional_bytes(view, record.key_at, record.key_size)
        if key is None or offset < self._offsets.get(key):
            return False
        horizon_ms = header.delete_horizon_ms
        return record.value_size >= 0 or horizon_ms is None or self._now_ms < horizon_ms

    def copy(self, buffer: Buffer, start: int, end: int) -> None:
        """Collect bytes unchanged."""
        self._gathered += check_range(buffer, start, end)[start:end]

    def take(self) -> memoryview:
        """The bytes collected since the last call, read-only."""
        gathered, self._gathered = self._gathered, bytearray()
        return memoryview(gathered).toreadonly()


def _rebuilt(view: memoryview, header: BatchHeader, kept: list[RecordView], horizon_ms: int) -> bytearray:
    """The batch with only these records, uncompressed; a horizon below zero means none."""
    batch, largest = bytearray(HEADER_BYTES), NO_TIMESTAMP
    base = horizon_ms if horizon_ms >= 0 else _timestamp(header, kept[0])
    for record in kept:
        timestamp = _timestamp(header, record)
        largest = max(largest, timestamp)
        _append(batch, to_int64(timestamp - base), record.offset_delta, view[record.tail_at : record.end])
    if not header.is_log_append_time:
        header = header._replace(max_timestamp=largest)
    return _finished(header, batch, len(kept), base, DELETE_HORIZON_FLAG if horizon_ms >= 0 else 0)


def _timestamp(header: BatchHeader, record: RecordView) -> int:
    if header.is_log_append_time:
        return header.max_timestamp
    return to_int64(header.base_timestamp + record.timestamp_delta)


def _append(batch: bytearray, timestamp_delta: int, offset_delta: int, tail: memoryview) -> None:
    front = bytearray(1)
    write_varlong(front, timestamp_delta)
    write_varlong(front, offset_delta)
    write_varlong(batch, len(front) + len(tail))
    batch += front
    batch += tail


def _finished(
    header: BatchHeader, batch: bytearray, count: int, base_timestamp: int, flags: int
) -> bytearray:
    """Write the header over the first bytes of `batch`: the old one with the changed fields."""
    length = len(batch) - LOG_OVERHEAD_BYTES
    if length > _MAX_BATCH_LENGTH:
        raise OverflowError("a batch cannot be larger than 2 GiB")
    changed = header._replace(
        batch_length=length,
        magic=MAGIC,
        attributes=header.attributes & _LASTING_FLAGS | flags,
        base_timestamp=base_timestamp,
        record_count=count,
    )
    HEADER.pack_into(batch, 0, *changed)
    batch[CRC_AT : CRC_AT + 4] = crc32c(batch, ATTRIBUTES_AT, len(batch)).to_bytes(4, "big")
    return batch
