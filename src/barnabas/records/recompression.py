"""A client's batch in the codec of its topic, where that is another than the producer's.

Only the wrapping changes: the records stay as they are, byte for byte, and so do offsets, timestamps and the
producer's numbers in the header. Since the batch is unfolded anyway, every record is looked at. What is left
over behind the batch is dropped. Decompressing, looking and compressing all release the GIL: it is a worker's
work.
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
    """Check what a produce request holds for one partition, as `validate_batch` does; it in `codec`."""
    header = check_only_batch(buffer)
    plain, summary = check_opened_records(buffer, header, policy)
    batch = bytearray(memoryview(buffer)[:HEADER_BYTES])
    batch += compress(codec, plain, level)
    batch[LENGTH_AT : LENGTH_AT + 4] = (len(batch) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
    batch[ATTRIBUTES_AT + 1] = batch[ATTRIBUTES_AT + 1] & ~CODEC_MASK | codec
    kernel.set_max_timestamp(batch, 0, len(batch), summary.max_timestamp)  # and the checksum of it all
    return batch
