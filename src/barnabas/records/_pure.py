"""The record kernel in plain Python: the reference for the compiled one, and the kernel in use without it.

Same functions, same values, same errors as _kernel.pyx; only slower. A fault inside a record is raised as
`Fault`; the called function turns it into the error that both kernels raise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import crc32c as _crc32c

from barnabas.core.disk import Buffer
from barnabas.core.errors import BarnabasError
from barnabas.records import _faults
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    CODEC_MASK,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from barnabas.records.record import Headers, Record

NAME = "pure"

MIN_BATCH_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
# length, attributes, timestamp delta, offset delta, key length, value length, header count
MIN_RECORD_BYTES = 7
MAX_CODEC = 4
_MAX_INT64 = 0x7FFFFFFFFFFFFFFF


class Fault(Exception):
    """A fault of the current record, raised to the function that knows the record's index."""

    def __init__(self, number: int) -> None:
        self.number = number


def check_range(buffer: Buffer, start: int, end: int) -> memoryview:
    view = memoryview(buffer).cast("B")
    if start < 0 or end < start or end > len(view):
        raise ValueError("the range is not inside the buffer")
    return view


def to_int64(value: int) -> int:
    """Wrap to 64 bits, as 64-bit arithmetic does."""
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


# ---- batches ----------------------------------------------------------------------------------------------


def crc32c(buffer: Buffer, start: int, end: int) -> int:
    """The CRC-32C of `buffer[start:end]`."""
    return _crc32c.crc32c(check_range(buffer, start, end)[start:end])


def _int32_at(view: memoryview, position: int) -> int:
    return int.from_bytes(view[position : position + 4], "big", signed=True)


def _frame_fault(view: memoryview, position: int, end: int) -> int:
    """Whether there is a whole v2 batch at `position`, judged by its length and magic."""
    if end - position <= MAGIC_AT:
        return _faults.SHORT
    magic = view[position + MAGIC_AT]
    if magic != MAGIC:
        return _faults.OLD_MAGIC if magic < MAGIC else _faults.BAD_MAGIC
    length = _int32_at(view, position + LENGTH_AT)
    if length < MIN_BATCH_LENGTH:
        return _faults.BAD_LENGTH
    return _faults.SHORT if end - position - LOG_OVERHEAD_BYTES < length else _faults.OK


def _field_fault(header: BatchHeader) -> int:
    """Whether the fields of a complete header are consistent."""
    codec, count, last_delta = header.attributes & CODEC_MASK, header.record_count, header.last_offset_delta
    if codec > MAX_CODEC:
        return _faults.BAD_CODEC
    if count < 0 or (codec == 0 and count * MIN_RECORD_BYTES > header.batch_length - MIN_BATCH_LENGTH):
        return _faults.BAD_COUNT
    if last_delta < 0 or last_delta < count - 1:
        return _faults.BAD_LAST_DELTA
    if header.base_offset < 0 or header.base_offset > _MAX_INT64 - last_delta - 1:
        return _faults.BAD_BASE_OFFSET
    return _faults.OK


def _read_header(view: memoryview, position: int) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(view, position))


def frame_and_field_fault(
    view: memoryview, position: int, end: int, verify_crc: bool
) -> tuple[int, BatchHeader | None]:
    """The fault of the batch at `position`, and its header if the batch is whole."""
    fault = _frame_fault(view, position, end)
    if fault != _faults.OK:
        return fault, None
    header = _read_header(view, position)
    if verify_crc:
        covered = view[position + ATTRIBUTES_AT : position + header.size_bytes]
        if _crc32c.crc32c(covered) != header.crc:
            return _faults.BAD_CRC, header
    return _field_fault(header), header


def check_batch(buffer: Buffer, position: int, end: int) -> BatchHeader:
    """The header of the batch at `position`; its length, magic, CRC-32C and fields are checked."""
    view = check_range(buffer, position, end)
    fault, header = frame_and_field_fault(view, position, end, True)
    if header is None or fault != _faults.OK:
        raise _faults.batch_error(fault, position)
    return header


def assign(buffer: Buffer, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the header at `position`; the CRC does not cover them."""
    view = check_range(_writable(buffer), position, position + HEADER_BYTES)
    at = position + BASE_OFFSET_AT
    view[at : at + 8] = base_offset.to_bytes(8, "big", signed=True)
    at = position + LEADER_EPOCH_AT
    view[at : at + 4] = leader_epoch.to_bytes(4, "big", signed=True)


def stamp(buffer: Buffer, position: int, size: int, max_timestamp: int) -> None:
    """Turn the batch at `position` into one of log append time, at `max_timestamp`, and update its CRC."""
    _renew(_writable(buffer), position, size, LOG_APPEND_TIME_FLAG, max_timestamp)


def set_max_timestamp(buffer: Buffer, position: int, size: int, max_timestamp: int) -> None:
    """Correct the largest timestamp in the header of the batch at `position`, and update its CRC."""
    _renew(_writable(buffer), position, size, 0, max_timestamp)


def _renew(view: memoryview, position: int, size: int, flags: int, max_timestamp: int) -> None:
    check_range(view, position, position + (size if size >= HEADER_BYTES else len(view) + 1))
    view[position + ATTRIBUTES_AT + 1] |= flags
    at = position + MAX_TIMESTAMP_AT
    view[at : at + 8] = max_timestamp.to_bytes(8, "big", signed=True)
    crc = _crc32c.crc32c(view[position + ATTRIBUTES_AT : position + size])
    view[position + CRC_AT : position + CRC_AT + 4] = crc.to_bytes(4, "big")


def _writable(buffer: Buffer) -> memoryview:
    view = memoryview(buffer).cast("B")
    if view.readonly:
        raise BufferError("the buffer is read-only")
    return view


def scan(
    buffer: Buffer, position: int, end: int, verify_crc: bool
) -> tuple[list[BatchHeader], int, str | None]:
    """Walk whole batches: (their headers, the bytes they take, the fault of what follows or None).

    None with all bytes consumed means that they end with a batch; None with bytes left means that an
    incomplete batch follows, as far as its bytes can tell.
    """
    view = check_range(buffer, position, end)
    headers: list[BatchHeader] = []
    at, fault = position, _faults.SHORT
    while at < end:
        fault, header = frame_and_field_fault(view, at, end, verify_crc)
        if header is None or fault != _faults.OK:
            break
        headers.append(header)
        at += header.size_bytes
    problem = None if at == end or fault == _faults.SHORT else _faults.reason(fault)
    return headers, at - position, problem


def scan_headers(buffer: Buffer, position: int, end: int) -> list[tuple[BatchHeader, int]]:
    """The headers from `position` on, each with its position; the last one's body may be missing.

    The walk ends before the first header that is incomplete or invalid; checksums are not verified.
    """
    view = check_range(buffer, position, end)
    headers: list[tuple[BatchHeader, int]] = []
    while end - position >= HEADER_BYTES:
        if _frame_fault(view, position, end) not in (_faults.OK, _faults.SHORT):
            break
        header = _read_header(view, position)
        if _field_fault(header) != _faults.OK:
            break
        headers.append((header, position))
        position += header.size_bytes
    return headers


# ---- records ----------------------------------------------------------------------------------------------


class RecordView(NamedTuple):
    """One record as positions in the buffer; a size below zero is a null.

    From `tail_at` on (the key's length and the rest), the bytes do not depend on the batch that holds the
    record.
    """

    timestamp_delta: int
    offset_delta: int
    key_at: int
    key_size: int
    value_at: int
    value_size: int
    header_count: int
    headers_at: int
    tail_at: int
    end: int


def _read_unsigned(view: memoryview, at: int, end: int, max_bytes: int) -> tuple[int, int]:
    value = 0
    for i in range(min(max_bytes, end - at)):
        byte = view[at + i]
        value |= (byte & 127) << (7 * i)
        if byte < 128:
            return value, at + i + 1
    raise Fault(_faults.BAD_VARINT)


def read_varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """A zigzag number of at most five bytes, and where it ends; bits beyond 32 are dropped as in Kafka."""
    if at < end and (byte := view[at]) < 128:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw, at = _read_unsigned(view, at, end, 5)
    raw &= 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), at


def read_varlong(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """As `read_varint`, of at most ten bytes and 64 bits."""
    raw, at = _read_unsigned(view, at, end, 10)
    raw &= 0xFFFFFFFFFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), at


def _read_field(view: memoryview, at: int, end: int) -> tuple[int, int, int]:
    """A length and that many bytes: (their start, the length or negative for null, their end)."""
    size, at = read_varint(view, at, end)
    if size > end - at:
        raise Fault(_faults.BAD_FIELD)
    return at, size, at + max(size, 0)


def _skip_headers(view: memoryview, at: int, end: int, count: int) -> int:
    if count < 0 or count > (end - at) // 2:
        raise Fault(_faults.BAD_HEADER_COUNT)
    for _ in range(count):
        _, size, at = _read_field(view, at, end)
        if size < 0:
            raise Fault(_faults.BAD_FIELD)
        _, _, at = _read_field(view, at, end)
    return at


def read_record(view: memoryview, at: int, end: int) -> RecordView:
    """Parse one record; every length is checked against the record, and the record against `end`."""
    if at == end:
        raise Fault(_faults.MISSING_RECORDS)
    size, at = read_varint(view, at, end)
    if size < 0 or size > end - at:
        raise Fault(_faults.BAD_RECORD_LENGTH)
    if size == 0:
        raise Fault(_faults.BAD_FIELD)
    stop = at + size
    timestamp_delta, at = read_varlong(view, at + 1, stop)
    offset_delta, tail_at = read_varint(view, at, stop)
    key_at, key_size, at = _read_field(view, tail_at, stop)
    value_at, value_size, at = _read_field(view, at, stop)
    header_count, headers_at = read_varint(view, at, stop)
    at = _skip_headers(view, headers_at, stop, header_count)
    if at != stop:
        raise Fault(_faults.BAD_RECORD_END)
    return RecordView(
        timestamp_delta,
        offset_delta,
        key_at,
        key_size,
        value_at,
        value_size,
        header_count,
        headers_at,
        tail_at,
        stop,
    )


def check_records(
    buffer: Buffer,
    start: int,
    end: int,
    header: BatchHeader,
    require_keys: bool,
    earliest_ms: int,
    latest_ms: int,
) -> tuple[int, int]:
    """One pass over the records at `buffer[start:end]`: (largest timestamp, offset delta of its record).

    (-1, -1) if no record has a timestamp. The bytes follow the header of an uncompressed batch, or are a
    batch's decompressed records. An error names all records that break a rule of the topic.
    """
    view = check_range(buffer, start, end)
    max_timestamp = latest_index = -1
    broken: list[tuple[int, int, int]] = []
    index, at = 0, start
    try:
        for index in range(header.record_count):
            record = read_record(view, at, end)
            at = record.end
            if record.offset_delta != index:
                raise Fault(_faults.BAD_OFFSET_DELTA)
            timestamp = to_int64(header.base_timestamp + record.timestamp_delta)
            if require_keys and record.key_size < 0:
                broken.append((_faults.NO_KEY, index, timestamp))
            elif timestamp != -1 and not earliest_ms <= timestamp <= latest_ms:
                broken.append((_faults.BAD_TIMESTAMP, index, timestamp))
            if len(broken) == _faults.NAMED_RECORDS:
                raise _faults.rules_error(broken, earliest_ms, latest_ms)
            if timestamp > max_timestamp:
                max_timestamp, latest_index = timestamp, index
        if at != end:
            index = max(header.record_count, 0)
            raise Fault(_faults.TRAILING_BYTES)
    except Fault as fault:
        raise _faults.record_error(fault.number, index) from None
    if broken:
        raise _faults.rules_error(broken, earliest_ms, latest_ms)
    return max_timestamp, latest_index


def admit(
    buffer: Buffer,
    base_offset: int,
    leader_epoch: int,
    require_keys: bool,
    earliest_ms: int,
    latest_ms: int,
) -> BatchHeader | None:
    """Fast path for the common produce: set offset and leader epoch of the single batch that fills `buffer`.

    Returns its header. Only an uncompressed batch that passes every rule for clients is accepted; for any
    other the result is None, nothing is changed, and `validate_batch` decides.
    """
    _writable(buffer)
    try:
        header = check_batch(buffer, 0, len(buffer))
        if not _is_usual(header, len(buffer)):
            return None
        max_timestamp, _ = check_records(
            buffer, HEADER_BYTES, len(buffer), header, require_keys, earliest_ms, latest_ms
        )
    except BarnabasError:
        return None
    if max_timestamp != header.max_timestamp:
        return None
    assign(buffer, 0, base_offset, leader_epoch)
    return _read_header(memoryview(buffer), 0)


def _is_usual(header: BatchHeader, size: int) -> bool:
    is_transactional = bool(header.attributes & TRANSACTIONAL_FLAG)
    return (
        header.base_offset == 0
        and header.size_bytes == size
        and header.attributes & 0xFF & ~TRANSACTIONAL_FLAG == 0
        and header.record_count > 0
        and header.last_offset_delta == header.record_count - 1
        and (header.base_sequence >= 0 if header.producer_id >= 0 else not is_transactional)
    )


def optional_bytes(view: memoryview, at: int, size: int) -> bytes | None:
    return None if size < 0 else bytes(view[at : at + size])


def read_headers(view: memoryview, at: int, end: int, count: int) -> list[tuple[bytes, bytes | None]]:
    """The headers of a record that `read_record` has already checked."""
    headers = []
    for _ in range(count):
        name_at, size, at = _read_field(view, at, end)
        name = bytes(view[name_at : name_at + size])
        value_at, size, at = _read_field(view, at, end)
        headers.append((name, optional_bytes(view, value_at, size)))
    return headers


def walk(view: memoryview, start: int, end: int, header: BatchHeader) -> Iterator[RecordView]:
    """The records of one batch as positions; offset deltas must rise and stay within the header's."""
    at, previous, index = start, -1, 0
    try:
        while index < header.record_count:
            record = read_record(view, at, end)
            if not previous < record.offset_delta <= header.last_offset_delta:
                raise Fault(_faults.BAD_OFFSET_DELTA)
            at, previous = record.end, record.offset_delta
            yield record
            index += 1
        if at != end:
            raise Fault(_faults.TRAILING_BYTES)
    except Fault as fault:
        raise _faults.record_error(fault.number, index) from None


def iterate(buffer: Buffer, start: int, end: int, header: BatchHeader) -> Iterator[Record]:
    """The records at `buffer[start:end]` one by one; a fault is raised when it is reached."""
    return _iterate(check_range(buffer, start, end), start, end, header)


def _iterate(view: memoryview, start: int, end: int, header: BatchHeader) -> Iterator[Record]:
    for record in walk(view, start, end, header):
        if header.is_log_append_time:
            timestamp = header.max_timestamp
        else:
            timestamp = to_int64(header.base_timestamp + record.timestamp_delta)
        yield Record(
            header.base_offset + record.offset_delta,
            timestamp,
            optional_bytes(view, record.key_at, record.key_size),
            optional_bytes(view, record.value_at, record.value_size),
            tuple(
                (name.decode("utf-8", "replace"), held)
                for name, held in read_headers(view, record.headers_at, record.end, record.header_count)
            ),
        )


def write_varlong(buffer: bytearray, value: int) -> None:
    raw = ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF
    while raw > 127:
        buffer.append(raw & 127 | 128)
        raw >>= 7
    buffer.append(raw)


def _write_field(buffer: bytearray, field: bytes | None) -> None:
    if field is None:
        buffer.append(1)
    else:
        write_varlong(buffer, len(field))
        buffer += field


def append_record(
    buffer: bytearray,
    base_timestamp: int,
    timestamp: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> None:
    """Encode one record at the end of `buffer`."""
    encoded = [(name.encode(), held) for name, held in headers]
    append_encoded(buffer, base_timestamp, timestamp, offset_delta, key, value, encoded)


def append_encoded(
    buffer: bytearray,
    base_timestamp: int,
    timestamp: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[bytes, bytes | None]],
) -> None:
    """As `append_record`, for headers whose names are already bytes."""
    body = bytearray(1)
    write_varlong(body, to_int64(timestamp - base_timestamp))
    write_varlong(body, offset_delta)
    _write_field(body, key)
    _write_field(body, value)
    write_varlong(body, len(headers))
    for name, held in headers:
        _write_field(body, name)
        _write_field(body, held)
    if len(body) > 0x7FFFFFFF:
        raise OverflowError("a record cannot be larger than 2 GiB")
    write_varlong(buffer, len(body))
    buffer += body
