"""A stream's reader, with the methods that Spark calls. The driver's half lives in one process from the start
of a query to its end and keeps its connections; tasks get a pickled copy that only reads.

Spark ends that process without calling `stop`, so nothing may be left to do at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas.spark.offsets import Written, read_offsets, write_offsets
from barnabas.spark.options import ReadOptions
from barnabas.spark.reading import RangePartition, read_partition

if TYPE_CHECKING:
    from barnabas.spark.stream_driver import StreamDriver


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The methods that Spark calls; offsets are in the form of the checkpoint."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamReader, (self._options,)

    @cached_property
    def _driver(self) -> StreamDriver:
        from barnabas.spark.stream_driver import StreamDriver  # tasks do not need it

        return StreamDriver(self._options)

    def initialOffset(self) -> Written:  # noqa: N802
        """The start of a new query."""
        return write_offsets(self._driver.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limits of the options. Spark has no limit of two kinds: the lower one is applied here."""
        stream = self._options.stream
        if stream.max_offsets is not None:
            return ReadMaxRows(stream.max_offsets)
        return ReadAllAvailable() if stream.min_offsets is None else ReadMinRows(stream.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read the available records, and no more."""
        self._driver.stream.stop_at_what_is_there()

    def latestOffset(self, start: Written, limit: ReadLimit) -> Written:  # noqa: N802
        """The end of the next batch."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        at_least_min = not isinstance(limit, ReadAllAvailable)
        return write_offsets(self._driver.latest(read_offsets(start), rows, at_least_min))

    def reportLatestOffset(self) -> Written | None:  # noqa: N802
        """The ends of the topics, even if the next batch reads less."""
        return write_offsets(self._driver.stream.newest) or None

    def partitions(self, start: Written, end: Written) -> Sequence[RangePartition]:
        """One range of offsets each."""
        return self._driver.partitions(read_offsets(start), read_offsets(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range."""
        return read_partition(self._options, partition)

    def stop(self) -> None:
        """Close the driver's half, if this is it."""
        driver = self.__dict__.pop("_driver", None)
        if driver is not None:
            driver.close()
