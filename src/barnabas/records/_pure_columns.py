"""The kernel's columns and hashes in plain Python; the other half of the pure twin (see _pure.py)."""

from __future__ import annotations

import struct
from array import array
from typing import Any

from barnabas.core.disk import Buffer
from barnabas.records import _faults
from barnabas.records._pure import (
    append_encoded,
    check_range,
    crc32c,
    frame_and_field_fault,
    optional_bytes,
    read_headers,
    to_int64,
    walk,
)
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    BatchHeader,
)
from barnabas.records.columns import BinaryColumn, Columns, HeaderColumn

BAD_COLUMNS = "the columns contradict themselves, or a row is larger than a batch can be"
MAX_COLUMN_BYTES = 0x7FFFFFFF


class _Binary:
    """A binary column under construction."""

    def __init__(self) -> None:
        self.valid: list[bool] = []
        self.ends = array("i", [0])
        self.data = bytearray()

    def append(self, field: bytes | None) -> None:
        self.valid.append(field is not None)
        self.data += field or b""
        self.ends.append(len(self.data))

    def cut(self, rows: int) -> None:
        del self.valid[rows:]
        del self.ends[rows + 1 :]
        del self.data[self.ends[rows] :]

    def finish(self) -> BinaryColumn:
        nulls = len(self.valid) - sum(self.valid)
        bits = None
        if nulls:
            number = sum(1 << row for row, valid in enumerate(self.valid) if valid)
            bits = number.to_bytes((len(self.valid) + 7) // 8, "little")
        return BinaryColumn(bits, self.ends.tobytes(), bytes(self.data), nulls)


class ColumnDecoder:
    """Collects the records of many batches into one set of columns; see columnar.decode for its use."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._offsets, self._timestamps = array("q"), array("q")
        self._key, self._value, self._name, self._held = _Binary(), _Binary(), _Binary(), _Binary()
        self._header_ends = array("i", [0])

    @property
    def rows(self) -> int:
        return len(self._offsets)

    def run(
        self,
        buffer: Buffer,
        position: int,
        end: int,
        first_offset: int,
        end_offset: int,
        control: bool,
        verify_crc: bool,
    ) -> tuple[int, BatchHeader | None]:
        """Add the batches from `position` on: (where it stopped, the header of a compressed batch there)."""
        view = check_range(buffer, position, end)
        while position < end:
            fault, header = frame_and_field_fault(view, position, end, verify_crc)
            if fault == _faults.SHORT:
                break
            if header is None or fault != _faults.OK:
                raise _faults.batch_error(fault, position)
            wanted = header.base_offset < end_offset and header.last_offset >= first_offset
            if wanted and (control or not header.attributes & CONTROL_FLAG):
                if header.attributes & CODEC_MASK:
                    return position, header
                start, stop = position + HEADER_BYTES, position + header.size_bytes
                self.section(view, start, stop, header, first_offset, end_offset)
            position += header.size_bytes
        return position, None

    def section(
        self, buffer: Buffer, start: int, end: int, header: BatchHeader, first_offset: int, end_offset: int
    ) -> None:
        """Add the records at `buffer[start:end]`, which are those of a compressed batch with that header."""
        view = check_range(buffer, start, end)
        columns = (self._key, self._value, self._name, self._held)
        if any(len(column.data) + end - start > MAX_COLUMN_BYTES for column in columns):
            raise _faults.record_error(_faults.TOO_LARGE, 0)
        rows, headers = self.rows, len(self._name.valid)
        try:
            self._take_in(view, start, end, header, first_offset, end_offset)
        except _faults.RECORD_ERRORS:
            for column, kept in zip(columns, (rows, rows, headers, headers), strict=True):
                column.cut(kept)
            del self._offsets[rows:], self._timestamps[rows:], self._header_ends[rows + 1 :]
            raise

    def _take_in(
        self,
        view: memoryview,
        start: int,
        end: int,
        header: BatchHeader,
        first_offset: int,
        end_offset: int,
    ) -> None:
        append_time = header.attributes & LOG_APPEND_TIME_FLAG
        for record in walk(view, start, end, header):
            offset = header.base_offset + record.offset_delta
            if not first_offset <= offset < end_offset:
                continue
            self._offsets.append(offset)
            timestamp = to_int64(header.base_timestamp + record.timestamp_delta)
            self._timestamps.append(header.max_timestamp if append_time else timestamp)
            self._key.append(optional_bytes(view, record.key_at, record.key_size))
            self._value.append(optional_bytes(view, record.value_at, record.value_size))
            for name, held in read_headers(view, record.headers_at, record.end, record.header_count):
                self._name.append(name)
                self._held.append(held)
            self._header_ends.append(len(self._name.valid))

    def finish(self) -> Columns:
        """The columns; afterwards the decoder is empty again."""
        columns = Columns(
            self.rows,
            self._offsets.tobytes(),
            self._timestamps.tobytes(),
            self._key.finish(),
            self._value.finish(),
            HeaderColumn(self._header_ends.tobytes(), self._name.finish(), self._held.finish()),
        )
        self._clear()
        return columns


class _Rows:
    """The fields of a binary column, checked as they are read."""

    def __init__(self, column: BinaryColumn, rows: int) -> None:
        self.valid = None if column.valid is None else _bytes_of(column.valid, (column.first + rows + 7) // 8)
        if column.first < 0 or rows < 0:
            raise ValueError(BAD_COLUMNS)
        self.ends = _bytes_of(column.ends, 4 * (column.first + rows) + 4)
        self.data = memoryview(column.data).cast("B")
        self.first = column.first

    def __getitem__(self, row: int) -> bytes | None:
        at = self.first + row
        if self.valid is not None and not self.valid[at >> 3] >> (at & 7) & 1:
            return None
        start, end = struct.unpack_from("=ii", self.ends, 4 * at)
        if not 0 <= start <= end <= len(self.data):
            raise ValueError(BAD_COLUMNS)
        return bytes(self.data[start:end])


def _bytes_of(buffer: Any, size: int) -> memoryview:
    view = memoryview(buffer).cast("B")
    if size < 0 or len(view) < size:
        raise ValueError(BAD_COLUMNS)
    return view


class ColumnEncoder:
    """Makes batches from the rows of one set of columns; see columnar.Encoder for its use."""

    def __init__(self, columns: Columns, order: Any = None) -> None:
        self._order: Any = range(columns.rows)
        if order is not None:
            view = memoryview(order).cast("B")
            self._order = view[: len(view) // 4 * 4].cast("i")
            if not all(0 <= row < columns.rows for row in self._order):
                raise ValueError(BAD_COLUMNS)
        self._timestamps = _bytes_of(columns.timestamp, 8 * columns.rows)[: 8 * columns.rows].cast("q")
        self._key, self._value = _Rows(columns.key, columns.rows), _Rows(columns.value, columns.rows)
        self._ends: memoryview | None = None
        if columns.headers is not None:
            size = 4 * columns.rows + 4
            self._ends = _bytes_of(columns.headers.ends, size)[:size].cast("i")
            self._headers = self._ends[columns.rows]
            self._name = _Rows(columns.headers.names, self._headers)
            self._held = _Rows(columns.headers.values, self._headers)

    def _headers_of(self, row: int) -> list[tuple[bytes, bytes | None]]:
        if self._ends is None or self._ends[row] == self._ends[row + 1]:
            return []
        if not 0 <= self._ends[row] <= self._ends[row + 1] <= self._headers:
            raise ValueError(BAD_COLUMNS)
        headers = []
        for at in range(self._ends[row], self._ends[row + 1]):
            name = self._name[at]
            if name is None:
                raise ValueError(BAD_COLUMNS)
            headers.append((name, self._held[at]))
        return headers

    def batch(
        self,
        start: int,
        stop: int,
        limit_bytes: int,
        flags: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
    ) -> tuple[bytearray, int]:
        """An uncompressed batch of the rows from `start` that fit: (its bytes, the first row left)."""
        if not 0 <= start < stop <= len(self._order):
            raise ValueError("there are no such rows")
        batch = bytearray(HEADER_BYTES)
        base, at, largest = self._timestamps[self._order[start]], start, NO_TIMESTAMP
        while at < stop:
            row, size = self._order[at], len(batch)
            timestamp = self._timestamps[row]
            append_encoded(
                batch, base, timestamp, at - start, self._key[row], self._value[row], self._headers_of(row)
            )
            if len(batch) > min(limit_bytes, MAX_COLUMN_BYTES) and at > start:
                del batch[size:]
                break
            largest = max(largest, timestamp)
            at += 1
        HEADER.pack_into(
            batch,
            0,
            0,
            len(batch) - LOG_OVERHEAD_BYTES,
            NO_LEADER_EPOCH,
            MAGIC,
            0,
            flags,
            at - start - 1,
            base,
            largest,
            producer_id,
            producer_epoch,
            base_sequence,
            at - start,
        )
        batch[CRC_AT : CRC_AT + 4] = crc32c(batch, ATTRIBUTES_AT, len(batch)).to_bytes(4, "big")
        return batch, at


# ---- hashes -----------------------------------------------------------------------------------------------

_MIX = 0x5BD1E995
_MASK_32 = 0xFFFFFFFF
_MASK_64 = 0xFFFFFFFFFFFFFFFF


def murmur2(key: bytes) -> int:
    """The hash by which Kafka's clients choose a partition, as a signed 32-bit number."""
    value, whole = 0x9747B28C ^ len(key), len(key) & ~3
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        word = word * _MIX & _MASK_32
        word ^= word >> 24
        value = (value * _MIX & _MASK_32) ^ (word * _MIX & _MASK_32)
    if whole < len(key):
        value = (value ^ int.from_bytes(key[whole:], "little")) * _MIX & _MASK_32
    value = (value ^ value >> 13) * _MIX & _MASK_32
    value ^= value >> 15
    return value - (value >> 31 << 32)


def partition_column(column: BinaryColumn, rows: int, partitions: int) -> bytearray:
    """The partition of every key as int32 values; -1 for a null key."""
    if partitions <= 0:
        raise ValueError("a topic has at least one partition")
    keys = _Rows(column, rows)
    result = array("i")
    for row in range(rows):
        key = keys[row]
        result.append(-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions)
    return bytearray(result.tobytes())


def group_rows(numbers: Any, rows: int, groups: int) -> tuple[bytearray, bytearray]:
    """Group rows by their int32 number (-1 to groups - 1), stable: (row numbers, the end of each group).

    Both as int32 values. Group n is from ends[n] to ends[n + 1]; ends[0] is the end of group -1.
    """
    if not (0 <= rows <= MAX_COLUMN_BYTES and 0 <= groups < MAX_COLUMN_BYTES - 2):
        raise ValueError(BAD_COLUMNS)
    number = _bytes_of(numbers, 4 * rows)[: 4 * rows].cast("i")
    placed: list[list[int]] = [[] for _ in range(groups + 1)]
    for row in range(rows):
        if not -1 <= number[row] < groups:
            raise ValueError("a number belongs to no group")
        placed[number[row] + 1].append(row)
    order, ends = array("i"), array("i")
    for group in placed:
        order.extend(group)
        ends.append(len(order))
    return bytearray(order.tobytes()), bytearray(ends.tobytes())


def key_hashes(buffer: Buffer, start: int, end: int, header: BatchHeader, seed: bytes) -> bytearray:
    """For every record with a key, 24 bytes: the 128-bit hash of the key, then its offset as native int64."""
    if len(seed) != 16:
        raise ValueError("the seed must be 16 bytes")
    result = bytearray()
    view = check_range(buffer, start, end)
    for record in walk(view, start, end, header):
        key = optional_bytes(view, record.key_at, record.key_size)
        if key is not None:
            result += struct.pack("=QQq", *_siphash128(key, seed), header.base_offset + record.offset_delta)
    return result


def _rotate(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) & _MASK_64


def _sip_rounds(v0: int, v1: int, v2: int, v3: int, rounds: int) -> tuple[int, int, int, int]:
    for _ in range(rounds):
        v0, v2 = v0 + v1 & _MASK_64, v2 + v3 & _MASK_64
        v1, v3 = _rotate(v1, 13) ^ v0, _rotate(v3, 16) ^ v2
        v0, v2 = _rotate(v0, 32) + v3 & _MASK_64, v2 + v1 & _MASK_64
        v1, v3 = _rotate(v1, 17) ^ v2, _rotate(v3, 21) ^ v0
        v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


def _siphash128(key: bytes, seed: bytes) -> tuple[int, int]:
    """SipHash-2-4 with 128 bits of output, as its two little-endian halves."""
    k0, k1 = struct.unpack("<QQ", seed)
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573
    whole = len(key) & ~7
    words = [word for (word,) in struct.iter_unpack("<Q", key[:whole])]
    words.append((len(key) & 0xFF) << 56 | int.from_bytes(key[whole:], "little"))
    for word in words:
        v0, v1, v2, v3 = _sip_rounds(v0, v1, v2, v3 ^ word, 2)
        v0 ^= word
    v0, v1, v2, v3 = _sip_rounds(v0, v1, v2 ^ 0xEE, v3, 4)
    low = v0 ^ v1 ^ v2 ^ v3
    v0, v1, v2, v3 = _sip_rounds(v0, v1 ^ 0xDD, v2, v3, 4)
    return low, v0 ^ v1 ^ v2 ^ v3
