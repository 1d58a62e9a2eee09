"""Writing: `df.write` and `df.writeStream.format("barnabas")`, rows as Arrow record batches to topics.

Spark makes a writer on the driver and sends it, pickled, to the tasks; each task writes its rows and answers
with a report, and the driver commits or aborts all of them together. For a stream Spark makes a new writer for
every batch. Exactly-once is a protocol of tasks and driver (exactly_once); at-least-once is a producer a task,
whose rows are acknowledged when the task ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.client.producer import Producer
from barnabas.spark.driving import seams
from barnabas.spark.option_values import OptionError
from barnabas.spark.pulling import pulled
from barnabas.spark.sink_options import WriteOptions, parse_write_options
from barnabas.spark.sink_schema import Column, to_records, written_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Written(WriterCommitMessage):
    """A task's rows are acknowledged."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of a batch."""
    if overwrite:
        raise OptionError('a topic cannot be overwritten: write with mode("append")')
    parsed = parse_write_options(options, is_stream=False)
    return BatchWriter(parsed, written_columns(schema, parsed.topic))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of a stream's batches."""
    if overwrite:
        raise OptionError('a topic cannot be written anew: use outputMode("append") or outputMode("update")')
    parsed = parse_write_options(options, is_stream=True)
    return StreamWriter(parsed, written_columns(schema, parsed.topic))


class BatchWriter(DataSourceArrowWriter):
    """At least once."""

    def __init__(self, options: WriteOptions, columns: Sequence[Column]) -> None:
        self._options, self._columns = options, columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(asyncio.run(send_all(self._options, records(iterator, self._columns))))


class StreamWriter(DataSourceStreamArrowWriter):
    """At least once."""

    def __init__(self, options: WriteOptions, columns: Sequence[Column]) -> None:
        self._options, self._columns = options, columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(asyncio.run(send_all(self._options, records(iterator, self._columns))))


async def records(
    batches: Iterator[pa.RecordBatch], columns: Sequence[Column]
) -> AsyncGenerator[pa.RecordBatch, None]:
    """What Spark hands over, as the client takes it, without batches that have no rows."""
    async with aclosing(pulled(batches)) as pulling:
        async for batch in pulling:
            if batch.num_rows:
                yield to_records(batch, columns)


async def send_all(options: WriteOptions, batches: AsyncGenerator[pa.RecordBatch, None]) -> int:
    """Send rows, at least once; how many, when all are acknowledged."""
    rows = 0
    waiting: list[asyncio.Future[int]] = []
    async with Producer(*seams(), options.bootstrap, options.producer) as producer:
        async with aclosing(batches):
            async for batch in batches:
                waiting = [each for each in waiting if not _is_good(each)]
                waiting.append(await producer.send_table(batch, options.topic))
                rows += batch.num_rows
        await producer.flush()
        await asyncio.gather(*waiting)
    return rows


def _is_good(written: asyncio.Future[int]) -> bool:
    """Whether it is acknowledged; raises why it is not, as soon as that is known."""
    return written.done() and written.result() >= 0
