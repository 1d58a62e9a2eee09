"""A v2 record batch as bytes: the position of each field of its 61-byte header, and a view over it.

The broker's hot path never parses a whole batch. `BatchHeader` is one unpack of the header: a tuple of
integers, made without copying the batch. The CRC-32C covers everything from `attributes` to the end, so base
offset, length, leader epoch and magic can be patched without updating it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.core.disk import Buffer

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
# base offset and batch length: the bytes that `batch_length` does not count
LOG_OVERHEAD_BYTES = 12

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57

MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

MAX_SEQUENCE = 0x7FFFFFFF


class BatchHeader(NamedTuple):
    """The header of one batch, in the order of the bytes."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @classmethod
    def parse(cls, buffer: Buffer, position: int = 0) -> BatchHeader:
        """Read the header that starts at `position`; struct.error if fewer than 61 bytes are left."""
        return cls._make(HEADER.unpack_from(buffer, position))

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2^31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The delete horizon of its tombstones and markers (KIP-534), in place of the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


def increment_sequence(sequence: int, by: int) -> int:
    """A producer's sequence number `by` records later, wrapping as Kafka's does."""
    return (sequence + by) & MAX_SEQUENCE
