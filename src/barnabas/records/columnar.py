"""Batches to columns and back: the fast way to read and write records by the thousand.

`decode` turns all batches of a buffer (a fetch response, a part of a segment) into one set of columns;
uncompressed batches are decoded by the kernel in one run without the GIL, compressed ones are decompressed
first. `Encoder` makes batches of ranges of rows.
"""

from __future__ import annotations

from barnabas.core.disk import Buffer
from barnabas.records import kernel
from barnabas.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
)
from barnabas.records.builder import compress_batch
from barnabas.records.columns import BinaryColumn, Columns, HeaderColumn
from barnabas.records.compression import Codec
from barnabas.records.reader import records_section

__all__ = ["BinaryColumn", "Columns", "Encoder", "HeaderColumn", "decode", "partition_of"]

MAX_OFFSET = (1 << 63) - 1
MAX_BATCH_BYTES = 0x7FFFFFFF
# the default size of a producer's batch: Kafka's default for batch.size
BATCH_BYTES = 16384


def decode(
    buffer: Buffer,
    position: int = 0,
    end: int | None = None,
    *,
    first_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    control: bool = False,
    verify_crc: bool = True,
    into: kernel.ColumnDecoder | None = None,
) -> Columns:
    """The records from `first_offset` up to but not including `end_offset` of the batches in the buffer.

    An incomplete batch at the end, as in fetch responses, is left out; an invalid one raises. Control batches
    are skipped unless `control` is set. `into` may already hold the records of other buffers.
    """
    decoder = kernel.ColumnDecoder() if into is None else into
    end = len(buffer) if end is None else end
    while True:
        position, header = decoder.run(buffer, position, end, first_offset, end_offset, control, verify_crc)
        if header is None:
            return decoder.finish()
        section, start, stop = records_section(buffer, position, header)
        decoder.section(section, start, stop, header, first_offset, end_offset)
        position += header.size_bytes


class Encoder:
    """Makes batches from the rows of one set of columns; `order`, if given, are int32 row numbers."""

    def __init__(self, columns: Columns, order: Buffer | None = None) -> None:
        self.rows = columns.rows if order is None else len(order) // 4
        self._kernel = kernel.ColumnEncoder(columns, order)

    def batch(
        self,
        start: int = 0,
        stop: int | None = None,
        *,
        limit_bytes: int = BATCH_BYTES,
        codec: int = Codec.NONE,
        level: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> tuple[bytearray, int]:
        """A batch of as many rows from `start` as fit `limit_bytes` uncompressed, at least one.

        Returns it with the first row of the next batch.
        """
        stop = self.rows if stop is None else stop
        flags = TRANSACTIONAL_FLAG if transactional else 0
        batch, row = self._kernel.batch(
            start, stop, limit_bytes, flags, producer_id, producer_epoch, base_sequence
        )
        return compress_batch(batch, codec, level), row


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Kafka's clients choose for a key."""
    return (kernel.murmur2(key) & 0x7FFFFFFF) % partitions
