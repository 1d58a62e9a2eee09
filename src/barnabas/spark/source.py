"""The data source: `spark.read.format("barnabas")`, found by name through pyspark_barnabas.

The driver asks for a plan (planning: one range of offsets a Spark partition), each task reads its range with
a consumer of its own, as Arrow record batches that go to the JVM as they are. Barnabas must therefore be
installed wherever tasks run. Only batches are read so far; streams and writing are still to come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from functools import partial

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.client.admin import Admin
from barnabas.client.arrow import read_range
from barnabas.client.consumer import Consumer
from barnabas.spark.driving import in_steps, seams
from barnabas.spark.option_values import OptionError
from barnabas.spark.options import ReadOptions, parse_options
from barnabas.spark.planning import plan
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.rows import to_rows

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


class BarnabasDataSource(DataSource):
    """Topics of a Kafka cluster, whoever made it."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        """The columns; they do not depend on what is in the topic."""
        return StructType([StructField(name, _TYPES[name]) for name in parse_options(self.options).columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        if schema != self.schema():
            raise OptionError("the schema is fixed; leave .schema(...) out, and name `columns` for fewer")
        return BatchReader(parse_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from barnabas.spark.sink import batch_writer  # only where it is used

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The writes of a stream."""
        from barnabas.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, offsets: OffsetRange) -> None:
        super().__init__(offsets)
        self.offsets = offsets


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
        """The records of a range; where there are none at all, Spark still asks once, for no partition."""
        if not isinstance(partition, RangePartition):
            return iter(())
        return in_steps(partial(self._read, partition.offsets))

    async def _read(self, offsets: OffsetRange) -> AsyncGenerator[pa.RecordBatch, None]:
        options = self._options
        async with Consumer(*seams(), options.bootstrap, options.consumer) as consumer:
            batches = read_range(
                consumer,
                (offsets.topic, offsets.partition),
                offsets.start,
                offsets.end,
                timeout_ms=options.poll_timeout_ms,
            )
            async with aclosing(batches):
                async for batch in batches:
                    yield to_rows(batch, options.columns)
