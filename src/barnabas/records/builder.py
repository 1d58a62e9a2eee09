"""Building a batch record by record; batches from columns are made by columnar.py.

A `BatchBuilder` holds the growing batch: 61 bytes reserved for the header, then the records, each encoded by
the kernel when it is appended. `build` writes the header, compresses the records, and sets the CRC; before
that the bytes are not a valid batch.

Record timestamps are stored as differences from the header's base timestamp: that of the first record, or the
delete horizon if the batch has one (KIP-534), which is stored in the same field.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.core.errors import InvalidRecord
from barnabas.records import kernel
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    CRC_AT,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LENGTH_AT,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
)
from barnabas.records.compression import Codec, codec_of, compress
from barnabas.records.record import Headers, Record


class BatchBuilder:
    """One batch under construction; see `build_batch` for the arguments."""

    def __init__(
        self,
        *,
        base_offset: int = 0,
        codec: int = Codec.NONE,
        level: int | None = None,
        append_time_ms: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        leader_epoch: int = NO_LEADER_EPOCH,
        delete_horizon_ms: int | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.record_count = 0
        self._codec, self._level = codec_of(codec), level
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._leader_epoch = leader_epoch
        self._append_time_ms = append_time_ms
        self._attributes = (
            (LOG_APPEND_TIME_FLAG if append_time_ms is not None else 0)
            | (TRANSACTIONAL_FLAG if transactional else 0)
            | (CONTROL_FLAG if control else 0)
            | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
        )
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._last_delta = -1
        self._buffer = bytearray(HEADER_BYTES)

    @property
    def size_bytes(self) -> int:
        """The size of the batch so far, uncompressed."""
        return len(self._buffer)

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        offset: int | None = None,
    ) -> None:
        """Add a record after the last one, or at `offset`, which must be greater than the last one's."""
        delta = self._last_delta + 1 if offset is None else offset - self.base_offset
        if not self._last_delta < delta <= 0x7FFFFFFF:
            raise InvalidRecord(f"offset {offset} does not fit into the batch at {self.base_offset}")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        kernel.append_record(self._buffer, self._base_timestamp, timestamp, delta, key, value, headers)
        self._last_delta = delta
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self.record_count += 1

    def build(self, *, last_offset: int | None = None) -> bytearray:
        """The finished batch; the builder cannot be used again. `last_offset` is for a batch whose last
        records were removed."""
        buffer = self._buffer
        del self._buffer
        last_delta = self._last_delta if last_offset is None else last_offset - self.base_offset
        base_timestamp = NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp
        max_timestamp = self._max_timestamp if self._append_time_ms is None else self._append_time_ms
        HEADER.pack_into(
            buffer,
            0,
            self.base_offset,
            len(buffer) - LOG_OVERHEAD_BYTES,
            self._leader_epoch,
            MAGIC,
            0,
            self._attributes,
            max(last_delta, self._last_delta, 0),
            base_timestamp,
            max_timestamp,
            *self._producer,
            self.record_count,
        )
        if self._codec is Codec.NONE:
            _set_crc(buffer)
            return buffer
        return compress_batch(buffer, self._codec, self._level)


def compress_batch(batch: bytearray, codec: int, level: int | None = None) -> bytearray:
    """The batch with its plain records compressed, in place if possible."""
    codec = codec_of(codec)
    if codec is not Codec.NONE:
        batch[HEADER_BYTES:] = compress(codec, bytes(batch[HEADER_BYTES:]), level)
        batch[LENGTH_AT : LENGTH_AT + 4] = (len(batch) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
        batch[ATTRIBUTES_AT + 1] |= codec
        _set_crc(batch)
    return batch


def _set_crc(batch: bytearray) -> None:
    crc = kernel.crc32c(batch, ATTRIBUTES_AT, len(batch))
    batch[CRC_AT : CRC_AT + 4] = crc.to_bytes(4, "big")


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    keep_offsets: bool = False,
    last_offset: int | None = None,
    codec: int = Codec.NONE,
    level: int | None = None,
    append_time_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """One batch of these records, with offsets from `base_offset` on.

    With `keep_offsets` the records keep their offsets, gaps included, and `last_offset` may lie beyond them,
    as in a compacted batch. `append_time_ms` makes it a batch of log append time.
    """
    builder = BatchBuilder(
        base_offset=base_offset,
        codec=codec,
        level=level,
        append_time_ms=append_time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        leader_epoch=leader_epoch,
        delete_horizon_ms=delete_horizon_ms,
    )
    for record in records:
        offset = record.offset if keep_offsets else None
        builder.append(record.timestamp, record.key, record.value, record.headers, offset=offset)
    return builder.build(last_offset=last_offset)
