"""What a task does: a range of offsets, read with a consumer of its own, as rows for Spark.

The record batches go to the JVM as they are. Where the range is not there any more the error names it, unless
the read was told to go on (failOnDataLoss=false: then the consumer goes to the first record there is).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from functools import partial

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import InputPartition

from barnabas.client.arrow import read_range
from barnabas.client.consumer import Consumer
from barnabas.client.errors import OffsetOutOfRange
from barnabas.spark.driving import in_steps, seams
from barnabas.spark.lost import DataLost
from barnabas.spark.options import ReadOptions
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.rows import client_name, to_rows


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, offsets: OffsetRange) -> None:
        super().__init__(offsets)
        self.offsets = offsets


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of a range; where there are none at all, Spark still asks once, for no partition."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return in_steps(partial(_read, options, partition.offsets))


async def _read(options: ReadOptions, offsets: OffsetRange) -> AsyncGenerator[pa.RecordBatch, None]:
    topic, number, start, end = offsets
    async with Consumer(*seams(), options.bootstrap, options.consumer) as consumer:
        batches = read_range(
            consumer,
            (topic, number),
            start,
            end,
            timeout_ms=options.poll_timeout_ms,
            columns=[client_name(name) for name in options.columns],
        )
        async with aclosing(batches):
            try:
                async for batch in batches:
                    yield to_rows(batch, options.columns)
            except OffsetOutOfRange as error:
                raise DataLost(
                    f"{topic}-{number} no longer has all of the offsets {start} to {end} ({error.what}): "
                    "they were deleted before they were read; keep records longer (retention.ms, "
                    "retention.bytes), or set failOnDataLoss to false to go on with what there is"
                ) from error
