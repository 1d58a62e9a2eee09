"""Validation of batches that a leader appends, and the assignment of their offsets.

A client's append is one batch: it is checked, numbered and, if the topic uses log append time, stamped, all
in place. The offsets and the leader epoch are outside the checksum, so numbering costs only the write of
twelve bytes. Appends of coordinators are this broker's own: only their framing is checked, and they may hold
several batches.
"""

from __future__ import annotations

from barnabas.core.errors import CorruptMessage, InvalidRecord, MessageTooLarge, RecordListTooLarge
from barnabas.core.workers import Workers
from barnabas.log.config import LogConfig
from barnabas.records import kernel
from barnabas.records.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_BYTES, BatchHeader
from barnabas.records.recompression import recompress_batch
from barnabas.records.validate import MAX_TIMESTAMP, RecordPolicy, validate_batch

Writable = bytearray | memoryview


def admit_batch(
    data: Writable, config: LogConfig, offset: int, leader_epoch: int, now_ms: int
) -> BatchHeader | None:
    """Check and number a client's batch if it is a plain one; None if it needs `admit_unusual_batch`."""
    if len(data) > config.plain_batch_bytes:
        return None
    return kernel.admit(
        data,
        offset,
        leader_epoch,
        config.is_compacted,
        now_ms - config.timestamp_before_max_ms,
        min(now_ms + config.timestamp_after_max_ms, MAX_TIMESTAMP),
    )


async def admit_unusual_batch(
    data: Writable, config: LogConfig, offset: int, leader_epoch: int, now_ms: int, workers: Workers
) -> tuple[memoryview, BatchHeader]:
    """Check and number any batch of a client, or raise its fault; returns the batch as it is to be stored.

    A compressed batch is decompressed, off the loop, only if its records must be checked: if keys are
    required or timestamps have an earliest bound. Otherwise the header is trusted. If the topic has a codec
    of its own, a batch in another one is recompressed, off the loop, too; it must not be too large before or
    after. A batch that is too large is not checked any further: that would delay others for nothing.
    """
    policy = _policy(config, now_ms)
    has_header = len(data) >= HEADER_BYTES
    if has_header:
        _check_message_size(min(len(data), BatchHeader.parse(data).size_bytes), config)
    codec = data[ATTRIBUTES_AT + 1] & CODEC_MASK if has_header else 0
    if config.codec is not None and codec != config.codec and has_header:
        data = await workers.compute(recompress_batch, data, config.codec, config.codec_level, policy)
        header = BatchHeader.parse(data)
    elif codec and policy.opens_compressed:
        header = await workers.compute(validate_batch, data, policy)
    else:
        header = validate_batch(data, policy)
    data = memoryview(data)[: header.size_bytes]
    _check_message_size(header.size_bytes, config)
    _check_size(header.size_bytes, config)
    kernel.assign(data, 0, offset, leader_epoch)
    if config.log_append_time:
        kernel.stamp(data, 0, header.size_bytes, now_ms)
    return data, BatchHeader.parse(data)


def _check_message_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        raise MessageTooLarge(
            f"a batch of {size} bytes is beyond max.message.bytes={config.max_message_bytes}"
        )


def _check_size(size: int, config: LogConfig) -> None:
    if size > config.segment_bytes:
        raise RecordListTooLarge(f"{size} bytes do not fit into a segment of {config.segment_bytes} bytes")


def _policy(config: LogConfig, now_ms: int) -> RecordPolicy:
    if config.log_append_time:
        return RecordPolicy(require_keys=config.is_compacted)
    return RecordPolicy(
        require_keys=config.is_compacted,
        earliest_ms=now_ms - config.timestamp_before_max_ms,
        latest_ms=min(now_ms + config.timestamp_after_max_ms, MAX_TIMESTAMP),
    )


def admit_batches(
    data: Writable, config: LogConfig, offset: int, leader_epoch: int, now_ms: int
) -> list[BatchHeader]:
    """Check the framing of the broker's own batches and assign their offsets."""
    end = len(data)
    _check_size(end, config)
    headers: list[BatchHeader] = []
    position = 0
    while position < end or not headers:
        if end - position < HEADER_BYTES:
            raise CorruptMessage(f"{end - position} bytes are too few for a record batch")
        kernel.assign(data, position, offset, leader_epoch)
        header = kernel.check_batch(data, position, end)
        if header.record_count <= 0:
            raise InvalidRecord(f"a batch of {header.record_count} records")
        size = header.size_bytes
        if config.log_append_time:
            kernel.stamp(data, position, size, now_ms)
            header = BatchHeader.parse(data, position)
        headers.append(header)
        position += size
        offset = header.next_offset
    return headers
