"""Validation of a client's batch before it is appended, at two depths.

The header of every batch is checked: `kernel.check_batch` for a well-formed v2 batch, then
`check_client_batch` for the rules for clients. The records are checked by one kernel pass. For a compressed
batch that would mean decompressing it, so it happens only if the topic's policy needs it; otherwise the
header is trusted, and only the first compressed bytes are checked.

The rules and their errors are those of Apache Kafka 4.3 as a running broker answers them; docs/records.md
lists the few places where Barnabas is stricter or answers with a more fitting error.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.disk import Buffer
from barnabas.core.errors import CorruptMessage, InvalidRecord, InvalidTimestamp
from barnabas.records import kernel
from barnabas.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    LENGTH_AT,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from barnabas.records.compression import check_framing
from barnabas.records.reader import records_section

MIN_TIMESTAMP = -(1 << 63)
MAX_TIMESTAMP = (1 << 63) - 1
# the smallest length of any message format; below it Kafka answers CORRUPT_MESSAGE
_MIN_ANY_LENGTH = 14


class RecordPolicy(NamedTuple):
    """The rules of a topic for its records. Bounds are inclusive; the widest ones exclude nothing."""

    require_keys: bool = False
    earliest_ms: int = MIN_TIMESTAMP
    latest_ms: int = MAX_TIMESTAMP
    # None: decompress only if the other rules cannot be checked otherwise
    open_compressed: bool | None = None

    @property
    def opens_compressed(self) -> bool:
        """Whether compressed batches are decompressed: the header has the latest timestamp, but neither the
        earliest one nor whether every record has a key."""
        if self.open_compressed is not None:
            return self.open_compressed
        return self.require_keys or self.earliest_ms > 0


ANY_RECORD = RecordPolicy()


class RecordSummary(NamedTuple):
    """The largest timestamp among the records and the offset delta of the first record that has it.

    If the records were checked, it is what the header should have (Kafka corrects a header that differs, and
    so does `validate_batch`); otherwise it is the header's timestamp, with the delta of the last record.
    """

    max_timestamp: int
    offset_delta_of_max: int


def validate_batch(buffer: Buffer, policy: RecordPolicy = ANY_RECORD) -> BatchHeader:
    """Check one partition's data of a produce request: exactly one batch, and no bytes of another.

    An incomplete batch after the first is tolerated, as in Kafka; the header's size decides. A wrong largest
    timestamp is corrected in place, so the buffer must be writable.
    """
    header = check_only_batch(buffer)
    summary = check_client_records(buffer, 0, header, policy)
    if summary.max_timestamp != header.max_timestamp:
        kernel.set_max_timestamp(buffer, 0, header.size_bytes, summary.max_timestamp)
        header = BatchHeader.parse(buffer)
    return header


def check_only_batch(buffer: Buffer) -> BatchHeader:
    """The header of the single batch in the buffer, after the checks that need only the header."""
    _check_first_frame(buffer)
    header = kernel.check_batch(buffer, 0, len(buffer))
    _check_alone(buffer, header.size_bytes)
    check_client_batch(header)
    return header


def check_client_batch(header: BatchHeader) -> None:
    """The rules for the header of a client's batch."""
    if header.record_count <= 0:
        raise InvalidRecord(f"a batch of {header.record_count} records")
    if header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"the last offset delta {header.last_offset_delta} does not fit {header.record_count} records"
        )
    if header.attributes & CONTROL_FLAG:
        raise InvalidRecord("clients are not allowed to write control records")
    if header.attributes & LOG_APPEND_TIME_FLAG:
        raise InvalidTimestamp("a producer must not set the timestamp type to log append time")
    if header.producer_id > NO_PRODUCER_ID:
        if header.base_sequence < 0:
            raise InvalidRecord(f"sequence {header.base_sequence} from producer {header.producer_id}")
    elif header.attributes & TRANSACTIONAL_FLAG:
        raise InvalidRecord("a transactional batch without a producer id")


def check_client_records(
    buffer: Buffer, position: int, header: BatchHeader, policy: RecordPolicy = ANY_RECORD
) -> RecordSummary:
    """The rules for the records of the batch at `position`, as far as the policy requires them to be read."""
    codec = header.attributes & CODEC_MASK
    if codec and not policy.opens_compressed:
        _check_framing(buffer, position, header)
        return _trust_header(header, policy)
    return check_opened_records(buffer, header, policy, position)[1]


def check_opened_records(
    buffer: Buffer, header: BatchHeader, policy: RecordPolicy = ANY_RECORD, position: int = 0
) -> tuple[memoryview, RecordSummary]:
    """The records of the batch at `position`, decompressed if needed, after every one of them was checked."""
    if header.attributes & CODEC_MASK:
        _check_framing(buffer, position, header)
    section, start, end = records_section(buffer, position, header)
    found = kernel.check_records(
        section, start, end, header, policy.require_keys, policy.earliest_ms, policy.latest_ms
    )
    return memoryview(section)[start:end], RecordSummary._make(found)


def _check_framing(buffer: Buffer, position: int, header: BatchHeader) -> None:
    start, end = position + HEADER_BYTES, position + header.size_bytes
    check_framing(header.attributes & CODEC_MASK, memoryview(buffer)[start:end])


def _trust_header(header: BatchHeader, policy: RecordPolicy) -> RecordSummary:
    timestamp = header.max_timestamp
    if timestamp != NO_TIMESTAMP and not policy.earliest_ms <= timestamp <= policy.latest_ms:
        raise InvalidTimestamp(
            f"the batch's largest timestamp {timestamp} is outside [{policy.earliest_ms}, {policy.latest_ms}]"
        )
    return RecordSummary(timestamp, header.last_offset_delta)


def _length_at(buffer: Buffer, position: int) -> int:
    return int.from_bytes(buffer[position + LENGTH_AT : position + LENGTH_AT + 4], "big", signed=True)


def _check_first_frame(buffer: Buffer) -> None:
    """The checks that Kafka makes before it looks at the batch itself.

    Bytes without a whole batch are not corrupt to Kafka: the request just has no batch.
    """
    short = len(buffer) <= MAGIC_AT
    if short or (buffer[MAGIC_AT] <= MAGIC and _length_at(buffer, 0) > len(buffer) - LOG_OVERHEAD_BYTES):
        raise InvalidRecord("a produce request must hold one whole batch for each partition")
    if buffer[MAGIC_AT] == MAGIC and _length_at(buffer, 0) >= _MIN_ANY_LENGTH and any(buffer[:LENGTH_AT]):
        raise InvalidRecord("a client's batch must start at offset 0")


def _check_alone(buffer: Buffer, position: int) -> None:
    rest = len(buffer) - position
    if rest <= MAGIC_AT:
        return
    length = _length_at(buffer, position)
    if length < _MIN_ANY_LENGTH or buffer[position + MAGIC_AT] > MAGIC:
        raise CorruptMessage("the bytes behind the batch are not those of another")
    if length <= rest - LOG_OVERHEAD_BYTES:
        raise InvalidRecord("a produce request must hold exactly one batch for each partition")
