"""The data source: `format("barnabas")` for reads and writes, found by name through pyspark_barnabas.

The driver plans (one range of offsets for each Spark partition), each task reads its range with a consumer of
its own, as Arrow record batches that go to the JVM as they are. So Barnabas must be installed wherever tasks
run. This module only has what Spark looks for; each kind of read or write has a module of its own, imported
at its use: Spark starts many processes, and each begins here.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
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

from barnabas.spark.option_values import OptionError
from barnabas.spark.options import parse_columns, parse_options

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
    """Topics of any Kafka cluster."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        """The columns; they do not depend on the topic's content."""
        return StructType([StructField(name, _TYPES[name]) for name in parse_columns(self.options)])

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from barnabas.spark.batch_reader import BatchReader, PruningReader

        self._check(schema)
        options = parse_options(self.options)
        return PruningReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read."""
        from barnabas.spark.stream_reader import StreamReader

        self._check(schema)
        return StreamReader(parse_options(self.options, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from barnabas.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A streaming write."""
        from barnabas.spark.sink import stream_writer

        # in mode complete Spark asks to overwrite: as in its own connector, the whole result is appended each
        # time
        return stream_writer(self.options, schema)

    def _check(self, schema: StructType) -> None:
        if schema != self.schema():
            raise OptionError("the schema is fixed; leave .schema(...) out, and name `columns` for fewer")
