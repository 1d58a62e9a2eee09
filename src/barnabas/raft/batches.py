"""The values of the metadata log, collected into batches as Kafka's leader does: at most 8 MiB each."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.records.builder import BatchBuilder

MAX_BATCH_BYTES = 8 << 20
# the overhead of a value in a batch, at most: lengths, deltas, no key, no headers
RECORD_OVERHEAD_BYTES = 21


def data_batches(
    values: Iterable[bytes],
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    max_bytes: int = MAX_BATCH_BYTES,
) -> list[bytearray]:
    """Batches of keyless records, one after another; a value that is too large gets one of its own."""
    batches: list[bytearray] = []
    builder: BatchBuilder | None = None
    for value in values:
        if builder is not None and builder.size_bytes + len(value) + RECORD_OVERHEAD_BYTES > max_bytes:
            base_offset += builder.record_count
            batches.append(builder.build())
            builder = None
        if builder is None:
            builder = BatchBuilder(base_offset=base_offset, leader_epoch=leader_epoch)
        builder.append(timestamp_ms, None, value)
    if builder is not None:
        batches.append(builder.build())
    return batches
