"""A batch read: planned once, on the driver; read by the tasks.

Filters are used only if both the option `pushFilters` and Spark's own setting allow it. Spark 4.2 and 4.3
keep the pruned plan with the loaded DataFrame, and use it for everything else that is derived from that
DataFrame, filtered or not: a DataFrame that is loaded with the option can be used for one query.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from barnabas.spark.filters import ANY, wanted_by
from barnabas.spark.options import ReadOptions
from barnabas.spark.reading import RangePartition, read_partition


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in the tasks; Spark sends a pickled copy to each."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._wanted = ANY

    def partitions(self) -> Sequence[RangePartition]:
        """One range of offsets each."""
        from barnabas.spark.planning import plan_batch  # tasks do not need it

        return [RangePartition(each) for each in asyncio.run(plan_batch(self._options, self._wanted))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range."""
        return read_partition(self._options, partition)


class PruningReader(BatchReader):
    """The same with filters. (Spark refuses a reader with this method while its own setting is off.)"""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Read less if filters allow it; Spark still applies all of them."""
        self._wanted = wanted_by(filters)
        return filters
