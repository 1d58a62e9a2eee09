"""Writing: `df.write` and `df.writeStream.format("barnabas")`, rows as Arrow record batches to topics.

Spark makes a writer on the driver and sends it, pickled, to the tasks; each task writes its rows and returns
a report, and the driver commits or aborts all of them together. For a stream Spark makes a new writer for
every batch, which learns its query and batch in the tasks; the processes that run it live longer.
Exactly-once is a protocol of tasks and driver (exactly_once, commits); at-least-once is one producer for each
task, whose rows are acknowledged when the task ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.client.producer import Producer
from barnabas.core.random import SystemRandom
from barnabas.spark.checks import check_task_settings
from barnabas.spark.commits import Committer
from barnabas.spark.driving import seams
from barnabas.spark.exactly_once import Job, Report, Sending, Step, TaskWrite, not_told
from barnabas.spark.option_values import OptionError
from barnabas.spark.process_state import this_process
from barnabas.spark.pulling import pulled
from barnabas.spark.sink_options import WriteOptions, parse_write_options
from barnabas.spark.sink_schema import Column, to_records, written_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Rows = Iterator[pa.RecordBatch]
Messages = list[WriterCommitMessage | None]

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"


class Message(WriterCommitMessage):
    """A task's message to the driver; without a report if its rows need no commit."""

    def __init__(self, rows: int, report: Report | None = None) -> None:
        self.rows, self.report = rows, report


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of a batch."""
    if overwrite:
        raise OptionError('a topic cannot be overwritten: write with mode("append")')
    parsed = parse_write_options(options, is_stream=False)
    return BatchWriter(parsed, written_columns(schema, parsed.topic))


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    """The writer of a stream's batches."""
    parsed = parse_write_options(options, is_stream=True)
    return StreamWriter(parsed, written_columns(schema, parsed.topic))


class BatchWriter(DataSourceArrowWriter):
    """One write; without a name it cannot be recognised if it is repeated."""

    step: Step = staticmethod(not_told)

    def __init__(self, options: WriteOptions, columns: Sequence[Column]) -> None:
        self._options, self._columns = options, columns
        is_named = options.app is not None
        # as in Delta's tables: one name may write to several topics, each time with the same version
        write = SystemRandom().uuid().hex
        app = f"{options.app}@{options.topic or '*'}" if is_named else write
        self._job = Job(options, app, options.version or 0, is_marked=is_named, write=write)

    def write(self, iterator: Rows) -> Message:
        """Write a task's rows."""
        if self._options.is_exactly_once:
            return write_once(self._job, True, iterator, self._columns, self.step)
        return write_at_least_once(self._options, iterator, self._columns)

    def commit(self, messages: Messages) -> None:
        """All tasks have succeeded: commit."""
        asyncio.run(self._end(reports_of(messages), commit=True))

    def abort(self, messages: Messages) -> None:
        """A task or the commit has failed: abort."""
        asyncio.run(self._end(reports_of(messages), commit=False))

    async def _end(self, reports: list[Report], *, commit: bool) -> None:
        if not self._options.is_exactly_once:
            return
        async with Committer(self._options, self._job.app, self.step) as committer:
            await (committer.commit if commit else committer.abort)(self._job, reports)


class StreamWriter(DataSourceStreamArrowWriter):
    """The batches of a query; `step` is called at each step of tasks and driver."""

    step: Step = staticmethod(not_told)

    def __init__(self, options: WriteOptions, columns: Sequence[Column]) -> None:
        self._options, self._columns = options, columns

    def write(self, iterator: Rows) -> Message:
        """Write a task's rows of a batch."""
        if not self._options.is_exactly_once:
            return write_at_least_once(self._options, iterator, self._columns)
        app, batch, run = (_property(name) for name in (_QUERY, _BATCH, _RUN))
        job = Job(self._options, app, int(batch))
        process = this_process()
        is_first = process.is_first(app, run, job.batch)
        message = write_once(job, is_first, iterator, self._columns, self.step)
        process.wrote(app, run, job.batch)
        return message

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """All tasks have succeeded: commit."""
        if reports := reports_of(messages):
            job = Job(self._options, reports[0].app, batchId)
            work = this_process().committer(job, self.step)
            work.loop.run(work.committer.commit(job, reports))

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """A task or the commit has failed: abort."""
        if reports := reports_of(messages):
            job = Job(self._options, reports[0].app, batchId)
            work = this_process().committer(job, self.step)
            work.loop.run(work.committer.abort(job, reports))


# ---- tasks ------------------------------------------------------------------------------------------------


def write_once(job: Job, is_first: bool, rows: Rows, columns: Sequence[Column], step: Step) -> Message:
    """Write a task's rows in a transaction that the driver ends."""
    context = TaskContext.get()
    assert context is not None
    check_task_settings(context.getLocalProperty)
    write = TaskWrite(job, context.partitionId(), is_first, step)
    report = asyncio.run(write.run(records(rows, columns)))
    return Message(report.rows, report)


def write_at_least_once(options: WriteOptions, rows: Rows, columns: Sequence[Column]) -> Message:
    """Write a task's rows, and wait until they are acknowledged."""
    return Message(asyncio.run(_send_all(options, records(rows, columns))))


async def _send_all(options: WriteOptions, batches: AsyncGenerator[pa.RecordBatch, None]) -> int:
    rows = 0
    async with aclosing(batches), Producer(*seams(), options.bootstrap, options.producer) as producer:
        sending = Sending(producer, options.topic)
        async for batch in batches:
            await sending.send(batch)
            rows += batch.num_rows
        await sending.finish()
    return rows


async def records(batches: Rows, columns: Sequence[Column]) -> AsyncGenerator[pa.RecordBatch, None]:
    """Spark's rows in the client's form, without empty batches."""
    async with aclosing(pulled(batches)) as pulling:
        async for batch in pulling:
            if batch.num_rows:
                yield to_records(batch, columns)


def _property(name: str) -> str:
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise OptionError(f"Spark does not say {name} to its tasks: only a streaming query can be written so")
    return value


# ---- the driver -------------------------------------------------------------------------------------------


def reports_of(messages: Messages) -> list[Report]:
    """The reports of the tasks that succeeded; empty if there is nothing to end."""
    told = [each.report for each in messages if isinstance(each, Message)]
    return [each for each in told if each is not None]
