"""Records as Arrow record batches: wire bytes -> kernel -> Arrow, without a Python object for any record.

    config = ConsumerConfig(reset=Reset.NONE)
    async with Consumer(network, clock, random, "localhost:9092", config) as consumer:
        async for batch in read_range(consumer, ("orders", 0), 0, 1_000_000):
            print(batch.num_rows, batch.schema.names)

Offsets without a visible record (compacted away, aborted, transaction markers) are skipped. A range is
complete when the position has reached its end, however few records that were, or when a broker whose log
reaches that end has nothing at the position in its local log. A record batch has only one type of timestamps.
Compressed batches are handed over before their uncompressed size exceeds HELD_BYTES, so memory stays bounded.

Of the client, only this and tables need pyarrow (the extra `arrow`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa  # type: ignore[import-untyped]

from barnabas.client.consumer import Consumer
from barnabas.client.errors import TimedOut
from barnabas.client.fetched import FetchedBatches
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST_LOCAL
from barnabas.core.disk import Buffer
from barnabas.protocol.channel import NotSpoken
from barnabas.records import kernel
from barnabas.records.batch import BatchHeader
from barnabas.records.columnar import MAX_OFFSET
from barnabas.records.columns import Columns
from barnabas.records.reader import records_section

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers")
HELD_BYTES = 32 * 1024 * 1024
MAX_ROWS = 1 << 17  # of a record batch: values that all rows share are repeated, the topic's name too
READ_TIMEOUT_MS = 60_000
PATIENCE_MS = 60_000
# numbered as in Kafka
CREATE_TIME = 0
LOG_APPEND_TIME = 1


async def read_range(
    consumer: Consumer,
    partition: tuple[str, int],
    start: int,
    end: int,
    *,
    timeout_ms: int = READ_TIMEOUT_MS,
    columns: Sequence[str] = COLUMNS,
) -> AsyncGenerator[pa.RecordBatch, None]:
    """The records of a partition from offset `start` up to but not including `end`, in order.

    The consumer is assigned only this partition: with others, the response limit could leave it out. Raises
    `TimedOut` if nothing arrives for `timeout_ms`; the consumer's reset policy decides about an offset that
    no longer exists.
    """
    place = TopicPartition(*partition)
    consumer.assign([place])
    consumer.seek(place, start)
    clock, position = consumer.cluster.clock, start
    deadline = clock.monotonic() + timeout_ms / 1000
    while position < end:
        left_ms = max(0, round((deadline - clock.monotonic()) * 1000))
        answers = await consumer.poll_batches(left_ms, unseen=True)
        before = position
        for fetched in answers:
            # after a reset the position may have gone back: skip records that were read, or not asked for
            wanted = fetched._replace(first_offset=max(fetched.first_offset, position))
            for batch in record_batches(wanted, end, columns):
                yield batch
            position = max(position, fetched.next_offset)
            is_empty = _has_nothing_up_to(end, fetched, consumer.config.read_committed)
            if is_empty and await _is_at_hand(consumer, place, position):
                return
        if position > before:
            deadline = clock.monotonic() + timeout_ms / 1000
        elif position < end and clock.monotonic() >= deadline:
            raise TimedOut(
                f"nothing of {place} came within {timeout_ms} ms at offset {position}, "
                f"and the range ends at {end}; is its leader up, and has the log that much?"
            )


def _has_nothing_up_to(end: int, fetched: FetchedBatches, read_committed: bool) -> bool:
    known_end = fetched.last_stable_offset if read_committed else fetched.high_watermark
    return not fetched.data and known_end >= end


async def _is_at_hand(consumer: Consumer, place: TopicPartition, position: int) -> bool:
    """Whether the position is in the leader's local log. Records from tiered storage may arrive too late for
    a response, which is empty then."""
    try:
        found = await consumer.offsets_for_times({place: EARLIEST_LOCAL})
    except NotSpoken:  # by brokers without tiered storage
        return True
    return position >= found[place].offset


async def read_all(
    consumer: Consumer, timeout_ms: int | None = None, columns: Sequence[str] = COLUMNS
) -> AsyncGenerator[pa.RecordBatch, None]:
    """The records of all assigned partitions; see Consumer.arrow."""
    while True:
        answers = await consumer.poll_batches(PATIENCE_MS if timeout_ms is None else timeout_ms)
        if not answers and timeout_ms is not None:
            return
        for fetched in answers:
            for batch in record_batches(fetched, columns=columns):
                yield batch


def record_batches(
    fetched: FetchedBatches, end_offset: int = MAX_OFFSET, columns: Sequence[str] = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """The fetched records below `end_offset`, with these COLUMNS."""
    for start, end in fetched.ranges:
        header = BatchHeader.parse(fetched.data, start)
        timestamp_type = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
        constants = {
            "topic": pa.scalar(fetched.topic, pa.string()),
            "partition": pa.scalar(fetched.partition, pa.int32()),
            "timestamp_type": pa.scalar(timestamp_type, pa.int32()),
        }
        for decoded in _decode(fetched.data, start, end, fetched.first_offset, end_offset):
            own = {name: decoded.array(name) for name in columns if name not in constants}
            for first in range(0, decoded.rows, MAX_ROWS):
                rows = min(MAX_ROWS, decoded.rows - first)
                arrays = [
                    own[name].slice(first, rows) if name in own else _repeated(constants[name], rows)
                    for name in columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, list(columns))


def _decode(data: Buffer, position: int, end: int, first_offset: int, end_offset: int) -> Iterator[Columns]:
    decoder, held_bytes = kernel.ColumnDecoder(), 0
    while True:
        # checksums were verified when the response arrived
        position, header = decoder.run(data, position, end, first_offset, end_offset, False, False)
        if header is None:
            break
        section, start, stop = records_section(data, position, header)
        if held_bytes and held_bytes + stop - start > HELD_BYTES:
            yield decoder.finish()
            decoder, held_bytes = kernel.ColumnDecoder(), 0
        decoder.section(section, start, stop, header, first_offset, end_offset)
        held_bytes += stop - start
        position += header.size_bytes
    if decoder.rows:
        yield decoder.finish()


def _repeated(value: pa.Scalar, rows: int) -> pa.Array:
    return _long(value, 1 << (rows - 1).bit_length()).slice(0, rows)


@lru_cache(maxsize=8)
def _long(value: pa.Scalar, rows: int) -> pa.Array:
    """The same value repeated; cached for the next record batches."""
    return pa.repeat(value, rows)
