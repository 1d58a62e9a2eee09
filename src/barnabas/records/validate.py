"""What a batch from a client must be before it may enter the log, in two depths.

The header of every batch is checked: `kernel.check_batch` for what makes it a sound v2 batch at all, then
`check_client_batch` for what a client may send. The records behind it are looked at by one kernel pass where
the topic's policy asks for it. A compressed batch must be decompressed for that; `open_compressed` says
whether (decompressing costs the broker what Kafka always pays, and many topics need nothing of it).
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.disk import Buffer
from barnabas.core.errors import InvalidRecord, InvalidTimestamp
from barnabas.records import kernel
from barnabas.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
)
from barnabas.records.reader import records_section

MIN_TIMESTAMP = -(1 << 63)
MAX_TIMESTAMP = (1 << 63) - 1


class RecordPolicy(NamedTuple):
    """What a topic asks of its records. The bounds are inclusive; the wide ones mean that it asks nothing."""

    require_keys: bool = False
    earliest_ms: int = MIN_TIMESTAMP
    latest_ms: int = MAX_TIMESTAMP
    open_compressed: bool | None = None

    @property
    def opens_compressed(self) -> bool:
        """Whether compressed batches are decompressed for the check; by default where keys are required."""
        return self.require_keys if self.open_compressed is None else self.open_compressed


ANY_RECORD = RecordPolicy()


class RecordSummary(NamedTuple):
    """What the pass over the records found: the largest timestamp and the first record that has it."""

    max_timestamp: int
    offset_delta_of_max: int


def check_client_batch(header: BatchHeader) -> None:
    """The rules for the header of a batch that a client sends."""
    if header.record_count <= 0:
        raise InvalidRecord(f"a batch of {header.record_count} records")
    if header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"the last offset delta {header.last_offset_delta} does not fit {header.record_count} records"
        )
    if header.attributes & CONTROL_FLAG:
        raise InvalidRecord("clients are not allowed to write control records")
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise InvalidRecord(
            f"base sequence {header.base_sequence} in a batch of producer {header.producer_id}"
        )


def check_client_records(
    buffer: Buffer, position: int, header: BatchHeader, policy: RecordPolicy = ANY_RECORD
) -> RecordSummary:
    """The rules for the records of the batch at `position`, as far as the policy looks at them."""
    if header.attributes & CODEC_MASK and not policy.opens_compressed:
        _check_max_timestamp(header, policy)
        return RecordSummary(header.max_timestamp, header.last_offset_delta)
    section, start, end = records_section(buffer, position, header)
    return RecordSummary._make(
        kernel.check_records(
            section, start, end, header, policy.require_keys, policy.earliest_ms, policy.latest_ms
        )
    )


def _check_max_timestamp(header: BatchHeader, policy: RecordPolicy) -> None:
    """All that an unopened batch says of its timestamps; the producer wrote it, and is taken at its word."""
    timestamp = header.max_timestamp
    if timestamp != NO_TIMESTAMP and not policy.earliest_ms <= timestamp <= policy.latest_ms:
        raise InvalidTimestamp(
            f"the batch's largest timestamp {timestamp} is outside [{policy.earliest_ms}, {policy.latest_ms}]"
        )
