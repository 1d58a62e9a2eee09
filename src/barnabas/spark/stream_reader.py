"""A stream, as Spark asks for it. The driver's half lives in one process from the start of a query to its end
and keeps its connections; tasks get a pickled copy that only reads.

Spark ends that process without calling `stop`, so nothing may be left to do at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas.client.admin import Admin
from barnabas.spark.driving import Background, seams
from barnabas.spark.mirror import Mirror
from barnabas.spark.offsets import Offsets, Written, read_offsets, write_offsets
from barnabas.spark.options import ReadOptions
from barnabas.spark.reading import RangePartition, read_partition
from barnabas.spark.stream import Stream


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark calls; offsets are those of the checkpoint."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamReader, (self._options,)

    @cached_property
    def _driver(self) -> _Driver:
        return _Driver(self._options)

    def initialOffset(self) -> Written:  # noqa: N802
        """Where a new query begins."""
        return write_offsets(self._driver.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limits that options set. Spark knows no limit of two kinds: the lower one is seen to here."""
        stream = self._options.stream
        if stream.max_offsets is not None:
            return ReadMaxRows(stream.max_offsets)
        return ReadAllAvailable() if stream.min_offsets is None else ReadMinRows(stream.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there now, and no more."""
        self._driver.stream.stop_at_what_is_there()

    def latestOffset(self, start: Written, limit: ReadLimit) -> Written:  # noqa: N802
        """Where the next batch ends."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        at_least_min = not isinstance(limit, ReadAllAvailable)
        return write_offsets(self._driver.latest(read_offsets(start), rows, at_least_min))

    def reportLatestOffset(self) -> Written | None:  # noqa: N802
        """Where the topics end, however much of that the next batch takes."""
        return write_offsets(self._driver.stream.newest) or None

    def partitions(self, start: Written, end: Written) -> Sequence[RangePartition]:
        """One range of offsets each."""
        return self._driver.partitions(read_offsets(start), read_offsets(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range."""
        return read_partition(self._options, partition)

    def stop(self) -> None:
        """Let go of what the driver's half holds, if this is it."""
        driver = self.__dict__.pop("_driver", None)
        if driver is not None:
            driver.close()


class _Driver:
    """The driver's half: calls of Spark's, answered on a loop that keeps running in between."""

    def __init__(self, options: ReadOptions) -> None:
        network, clock, random = seams()
        group_id = options.stream.group_id
        self._background = Background("barnabas-stream")
        self._admin = Admin(network, clock, random, options.bootstrap, options.consumer.client)
        self._mirror = None if group_id is None else Mirror(self._admin, clock, group_id)
        self.stream = Stream(self._admin, clock, options)

    def initial(self) -> Offsets:
        return self._background.run(self.stream.initial())

    def latest(self, start: Offsets, limit: int | None, at_least_min: bool) -> Offsets:
        return self._background.run(self._latest(start, limit, at_least_min))

    async def _latest(self, start: Offsets, limit: int | None, at_least_min: bool) -> Offsets:
        if self._mirror is not None:
            self._mirror.note(start)
        end = await self.stream.latest(start, limit, at_least_min=at_least_min)
        if self._mirror is not None and end == start:  # this may be the last call
            await self._mirror.settle()
        return end

    def partitions(self, start: Offsets, end: Offsets) -> list[RangePartition]:
        return [RangePartition(each) for each in self._background.run(self.stream.ranges(start, end))]

    def close(self) -> None:
        self._background.run(self._admin.close())
        self._background.close()
