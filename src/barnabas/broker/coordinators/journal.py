"""The records that a shard has yet to write: they become batches, and many batches become one append.

Records outside of transactions share batches up to the topic's size limit. The records of a transaction are a
batch of their own with its producer id. Its sequence is always 0, as in Kafka: it is never checked, but
Kafka's cleaner refuses to write a producer's batch without one. A write that is too large for one batch is
refused before any of it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.coordination.effects import Producer, Write
from barnabas.coordination.records import encode_key, encode_value
from barnabas.core.errors import RecordListTooLarge
from barnabas.records.batch import HEADER_BYTES
from barnabas.records.builder import BatchBuilder

RECORD_OVERHEAD_BYTES = 32  # lengths, deltas and attributes of a record, at most


class Encoded(NamedTuple):
    """A write, encoded."""

    records: list[tuple[bytes, bytes | None]]
    producer: Producer | None
    size_bytes: int


def encode_write(write: Write, max_bytes: int) -> Encoded:
    """Encode a write; RecordListTooLarge if it does not fit into one batch."""
    try:
        records = [(encode_key(one.key), encode_value(one)) for one in write.records]
    except struct.error as error:  # strings in requests may be longer than strings in records
        raise RecordListTooLarge(f"a name is too long to be written down: {error}") from None
    size = sum(len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in records)
    if HEADER_BYTES + size > max_bytes:
        raise RecordListTooLarge(f"a write of {size} bytes is beyond max.message.bytes={max_bytes}")
    return Encoded(records, write.producer, size)


class Journal:
    """The batches of the next append."""

    def __init__(self, codec: int) -> None:
        self._codec = codec
        self._done: list[bytearray] = []
        self._open: BatchBuilder | None = None

    def add(self, writes: Sequence[Encoded], now_ms: int, max_bytes: int) -> None:
        """Append writes to the journal."""
        for write in writes:
            if write.producer is not None:
                self._close()
                self._open = BatchBuilder(
                    producer_id=write.producer.id,
                    producer_epoch=write.producer.epoch,
                    base_sequence=0,
                    transactional=True,
                )
            elif self._open is None or self._open.size_bytes + write.size_bytes > max_bytes:
                self._close()
                self._open = BatchBuilder(codec=self._codec)
            for key, value in write.records:
                self._open.append(now_ms, key, value)
            if write.producer is not None:
                self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._done.append(self._open.build())
            self._open = None

    def take(self) -> bytearray:
        """Everything so far, as the bytes of one append; the journal is empty afterwards."""
        self._close()
        done, self._done = self._done, []
        return done[0] if len(done) == 1 else bytearray().join(done)
