"""A task of a read: a range of offsets, read with a consumer of its own, as rows for Spark.

The record batches go to the JVM as they are. If the range does not exist any more the error names it, unless
the read should go on (failOnDataLoss=false: then the consumer goes to the first available record).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from functools import partial

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import InputPartition

from barnabas.client.arrow import read_range
from barnabas.client.consumer import Consumer
from barnabas.client.errors import OffsetOutOfRange, TimedOut
from barnabas.client.metadata import TopicPartition
from barnabas.core.errors import BarnabasError
from barnabas.spark.driving import in_steps, seams
from barnabas.spark.lost import DataLost
from barnabas.spark.options import ReadOptions
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.rows import client_name, to_rows

logger = logging.getLogger("barnabas.spark")

LOOK_MS = 5000  # after this time without records, check whether the topic still exists
_NO_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"


class BadTime(ValueError):
    """A record has a time that does not fit Spark's timestamp type."""


class RangePartition(InputPartition):
    """The range that one task reads."""

    def __init__(self, offsets: OffsetRange) -> None:
        super().__init__(offsets)
        self.offsets = offsets


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of a range; for an empty plan, Spark still asks once, for no partition."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return in_steps(partial(_read, options, partition.offsets))


async def _read(options: ReadOptions, offsets: OffsetRange) -> AsyncGenerator[pa.RecordBatch, None]:
    topic, number, start, end = offsets
    place, silent_ms = TopicPartition(topic, number), 0
    columns = [client_name(name) for name in options.columns]
    async with Consumer(*seams(), options.bootstrap, options.consumer) as consumer:
        while True:
            wait_ms = min(LOOK_MS, options.poll_timeout_ms - silent_ms)
            batches = read_range(consumer, place, start, end, timeout_ms=wait_ms, columns=columns)
            try:
                async with aclosing(batches):
                    async for batch in batches:
                        yield _rows(batch, options, place)
                return
            except OffsetOutOfRange as error:
                raise DataLost(
                    f"{place} no longer has all of the offsets {start} to {end} ({error.what}): "
                    "they were deleted before they were read; keep records longer (retention.ms, "
                    "retention.bytes), or set failOnDataLoss to false to go on with what there is"
                ) from error
            except TimedOut:
                if (why := await _why_lost(consumer, place, start)) is not None:
                    _lose(options, offsets, why)
                    return
                position = await consumer.position(place)
                silent_ms = 0 if position > start else silent_ms + wait_ms
                start = position
                if silent_ms >= options.poll_timeout_ms:
                    await _give_up(consumer, options, offsets, position)
                    return


def _rows(batch: pa.RecordBatch, options: ReadOptions, place: TopicPartition) -> pa.RecordBatch:
    try:
        return to_rows(batch, options.columns)
    except pa.ArrowInvalid as error:
        raise BadTime(
            f"{place} has a record whose time Spark cannot hold ({error}): was it in nanoseconds? "
            "Name the columns without `timestamp` in the option `columns` to read it nevertheless"
        ) from error


async def _why_lost(consumer: Consumer, place: TopicPartition, start: int) -> str | None:
    """The reason if it is certain that no records will arrive."""
    known = consumer.cluster.metadata.topics.get(place.topic)
    if known is not None and known.error is not None and known.error.name == _NO_TOPIC:
        return f"topic {place.topic} is gone"
    if await consumer.position(place) < start:  # a reset went back: there is nothing at the start or after it
        return f"{place} ends before offset {start}"
    return None


async def _give_up(consumer: Consumer, options: ReadOptions, offsets: OffsetRange, position: int) -> None:
    """No records arrived in time: either there are none, or the leader does not answer."""
    place = TopicPartition(offsets.topic, offsets.partition)
    try:
        last = (await consumer.end_offsets(place))[place]
    except BarnabasError:
        last = offsets.end
    if last < offsets.end:
        _lose(options, offsets._replace(start=position), f"{place} ends at offset {last}")
        return
    raise TimedOut(
        f"nothing of {place} came within {options.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs) at "
        f"offset {position}, and the range ends at {offsets.end}; is its leader up?"
    )


def _lose(options: ReadOptions, offsets: OffsetRange, why: str) -> None:
    topic, number, start, end = offsets
    what = f"{why}, and offsets {start} to {end} of partition {number} of {topic} were not read yet"
    if options.fail_on_data_loss:
        raise DataLost(f"{what}; set failOnDataLoss to false to go on without them")
    logger.warning("%s; the read goes on without them", what)
