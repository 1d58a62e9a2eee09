"""A batch read: planned once, on the driver; read by the tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.client.admin import Admin
from barnabas.spark.driving import seams
from barnabas.spark.options import ReadOptions
from barnabas.spark.planning import plan
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.reading import RangePartition, read_partition


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in the tasks; Spark sends a pickled copy to each."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[RangePartition]:
        """One range of offsets each."""
        return [RangePartition(each) for each in asyncio.run(self._plan())]

    async def _plan(self) -> list[OffsetRange]:
        options = self._options
        async with Admin(*seams(), options.bootstrap, options.consumer.client) as admin:
            return await plan(admin, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range."""
        return read_partition(self._options, partition)
