"""A client's batch in the codec of its topic, if that differs from the producer's.

Only the compression changes: the records stay the same, byte for byte, and so do offsets, timestamps and the
producer's fields in the header. Since the batch is decompressed anyway, every record is checked. Bytes after
the batch are dropped. Decompressing, checking and compressing all release the GIL, so this runs in a worker.
"""

from __future__ import annotations

from barnabas.core.disk import Buffer
from barnabas.records import kernel
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_AT,
    LOG_OVERHEAD_BYTES,
)
from barnabas.records.compression import Codec, compress
from barnabas.records.validate import ANY_RECORD, RecordPolicy, check_only_batch, check_opened_records


def recompress_batch(
    buffer: Buffer, codec: Codec, level: int | None = None, policy: RecordPolicy = ANY_RECORD
) -> bytearray:
    """Check one partition's data of a produce request as `validate_batch` does; the batch in `codec`."""
    header = check_only_batch(buffer)
    plain, summary = check_opened_records(buffer, header, policy)
    batch = bytearray(memoryview(buffer)[:HEADER_BYTES])
    batch += compress(codec, plain, level)
    batch[LENGTH_AT : LENGTH_AT + 4] = (len(batch) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
    batch[ATTRIBUTES_AT + 1] = batch[ATTRIBUTES_AT + 1] & ~CODEC_MASK | codec
    kernel.set_max_timestamp(batch, 0, len(batch), summary.max_timestamp)  # this also sets the CRC
    return batch
