"""Exactly once, the tasks' part. The whole protocol:

A task writes its rows and a marker (markers) in one transaction, with a transactional id of its own in the
application (a query, or a batch job with a name), and leaves the transaction prepared. The driver (commits)
then writes the decision, if more than one task has rows, and ends all transactions. After a crash, another
run of the same batch finds in the marker topic how far it had come:

    nothing yet    open transactions are aborted, and the batch is written: by any number of tasks
    decided        the transactions that the decision names are committed, and nothing is written. If the
                   coordinator aborted one meanwhile (the query was away for longer than the timeout), its
                   task writes it again if it has the same rows; otherwise the batch is refused
    committed      nothing is written

Initialising a transactional id fences its earlier producer and ends its open transaction, so a marker that is
read after that is reliable: no other producer will ever commit with that id. Only the first batch of a run
may have been begun by an earlier one; the tasks of later batches do not read the markers.

If a task fails Spark gives the write up at once, while other tasks may only be starting: transactions that
they leave open would block read_committed consumers until they time out. A query's next run aborts them. A
batch write has no next run: so the driver leaves a sign (an id of its own) before it fences the ids that it
finds, and a task looks for the sign once its id exists. So at least one of the two detects the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.admin import Admin
from barnabas.client.errors import BrokerError, ProducerFenced, TransactionEnded, UnknownTransactionalId
from barnabas.client.producer import Producer
from barnabas.client.transactions import PreparedTransaction
from barnabas.core.errors import BarnabasError
from barnabas.spark.checks import check_transaction_timeout
from barnabas.spark.driving import seams
from barnabas.spark.markers import (
    PARTITION,
    Decision,
    Entry,
    MarkerLog,
    Markers,
    TaskMarker,
    ensure_topic,
    given_up_id,
    marker_value,
    transactional_id,
)
from barnabas.spark.sink_options import WriteOptions
from barnabas.spark.sink_schema import payload_bytes

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

Step = Callable[[str], None]  # called at every step: tests end the process there
_FORGOTTEN = "INVALID_PRODUCER_ID_MAPPING"


def not_told(step: str) -> None:
    """The default step: does nothing."""


class AlreadyFurther(BarnabasError):
    """A later batch has been written than the one that is to be written now."""


class WriteGivenUp(BarnabasError):
    """Spark has given the write up, since another of its tasks failed, which has the reason."""


class Job(NamedTuple):
    """A batch of an application, to be written once."""

    options: WriteOptions
    app: str
    batch: int
    is_marked: bool = True  # otherwise it is never written again, and nothing needs to be remembered
    write: str | None = None  # names this attempt of a batch write; for a stream, attempts are its runs

    @property
    def is_stream(self) -> bool:
        return self.write is None

    def binding(self, markers: Markers) -> Decision | None:
        """The decision that has to be carried out before anything else: on this batch, or on a job's last
        write, which may never be repeated. A query's last batch is never left unfinished like that."""
        return markers.decided(self.batch) if self.is_stream else markers.decision

    def further(self, newest: int) -> AlreadyFurther:
        """The error if later batches are written already."""
        return AlreadyFurther(
            f"this is batch {self.batch} of query {self.app}, and its batch {newest} is written already: "
            f"either another run of the query is alive, or the checkpoint is older than what was written. "
            f"Stop one of the two, or restore the checkpoint; with a new one the query has a new id, and "
            f"writes whatever it reads again"
        )


class Report(NamedTuple):
    """The result of a task; without a transaction if it had no rows, or nothing was to be written."""

    app: str
    batch: int
    task: int
    is_first: bool  # whether this worker process has written no earlier batch of this run
    rows: int = 0
    bytes_: int = 0
    prepared: PreparedTransaction | None = None
    is_passed_over: bool = False  # it found the batch written or decided, and left its rows out

    def entry(self) -> Entry:
        prepared = self.prepared
        assert prepared is not None
        return Entry(
            self.task, prepared.producer_id, prepared.epoch, prepared.version, self.rows, self.bytes_
        )


class Verdict(Enum):
    WRITE = auto()
    DONE = auto()


def judge(markers: Markers, job: Job, task: int) -> Verdict | Entry:
    """The work of a task: write, nothing, or make sure that a decided transaction is committed."""
    newest = markers.newest_batch
    if newest < job.batch:
        return Verdict.WRITE
    if newest > job.batch:
        if job.is_stream:
            raise job.further(newest)
        return Verdict.DONE
    decision = markers.decided(job.batch)
    if decision is None or markers.has_committed(task, job.batch):
        return Verdict.DONE  # without a decision there was one transaction, and its marker is there
    return next((entry for entry in decision.entries if entry.task == task), Verdict.DONE)


async def finish(admin: Admin, app: str, entry: Entry) -> bool:
    """Commit a decided transaction; False if it has been aborted, or its coordinator does not know it."""
    try:
        await admin.end_transaction(entry.prepared(app), commit=True)
    except (ProducerFenced, TransactionEnded, UnknownTransactionalId):
        return False
    except BrokerError as error:
        if error.error.name != _FORGOTTEN:
            raise
        return False
    return True


class TaskWrite:
    """One task's part of a batch."""

    def __init__(self, job: Job, task: int, is_first: bool, step: Step = not_told) -> None:
        self._job, self._task, self._is_first, self._step = job, task, is_first, step

    async def run(self, batches: AsyncGenerator[pa.RecordBatch, None]) -> Report:
        """Write the rows, unless they are written already."""
        job, options = self._job, self._job.options
        async with aclosing(batches):
            if not (self._is_first and job.is_marked):
                return await self._write(batches, None)
            async with Admin(*seams(), options.bootstrap, options.admin_client) as admin:
                await ensure_topic(admin, options.marker_topic)
                async with MarkerLog(admin, options.bootstrap, options.marker_topic, job.app) as log:
                    if await self._is_done(admin, await log.read()):
                        return await self._pass_over(batches)
                    return await self._write(batches, log)

    async def _is_done(self, admin: Admin, markers: Markers) -> bool:
        """Whether nothing is left to write; tries to commit this task's decided transaction, if there is
        one."""
        job = self._job
        verdict = judge(markers, job, self._task)
        self._step("read")
        undone = markers.undone(job.binding(markers))
        mine = next((entry for entry in undone if entry.task == self._task), None)
        is_committed = mine is not None and await finish(admin, job.app, mine)
        return verdict is Verdict.DONE or (verdict is mine and is_committed)

    async def _write(self, batches: AsyncGenerator[pa.RecordBatch, None], log: MarkerLog | None) -> Report:
        first = await anext(batches, None)
        if first is None:
            return self._nothing()
        job = self._job
        if job.is_marked:  # the next write may use the id already, and would lose it
            await self._check_not_given_up()
        config = job.options.producer._replace(transactional_id=transactional_id(job.app, self._task))
        async with Producer(*seams(), job.options.bootstrap, config) as producer:
            async with check_transaction_timeout(config.transaction_timeout_ms):
                await producer.init_transactions()
            self._step("initialised")
            if log is not None and judge(await log.read(), job, self._task) is Verdict.DONE:
                return await self._pass_over(batches)
            await self._check_not_given_up()
            self._step("begun")
            producer.begin_transaction()
            try:
                return await self._send(producer, first, batches)
            except Exception:
                with suppress(BarnabasError):  # otherwise its timeout aborts it
                    await producer.abort_transaction()
                raise

    async def _check_not_given_up(self) -> None:
        job, options = self._job, self._job.options
        if job.write is None:
            return
        async with Admin(*seams(), options.bootstrap, options.admin_client) as admin:
            with suppress(UnknownTransactionalId):
                await admin.describe_transactions([given_up_id(job.app, job.write)])
                raise WriteGivenUp(f"task {self._task} writes nothing: another task of this write has failed")

    async def _send(
        self, producer: Producer, first: pa.RecordBatch, batches: AsyncGenerator[pa.RecordBatch, None]
    ) -> Report:
        job, rows, bytes_ = self._job, 0, 0
        sending = Sending(producer, job.options.topic)
        batch: pa.RecordBatch | None = first
        while batch is not None:
            await sending.send(batch)
            rows, bytes_ = rows + batch.num_rows, bytes_ + payload_bytes(batch)
            batch = await anext(batches, None)
        if job.is_marked:
            value = marker_value(TaskMarker(job.batch, rows, bytes_))
            key = transactional_id(job.app, self._task).encode()
            await producer.send(job.options.marker_topic, value, key, PARTITION)
        await sending.finish()
        self._step("written")
        prepared = await producer.prepare_transaction()
        self._step("prepared")
        return Report(job.app, job.batch, self._task, self._is_first, rows, bytes_, prepared)

    async def _pass_over(self, batches: AsyncGenerator[pa.RecordBatch, None]) -> Report:
        """Consume the rows all the same: otherwise Spark's worker could not be reused."""
        async for _ in batches:
            pass
        return self._nothing()._replace(is_passed_over=True)

    def _nothing(self) -> Report:
        return Report(self._job.app, self._job.batch, self._task, self._is_first)


class Sending:
    """Tables being sent; an error is raised as soon as it is known."""

    def __init__(self, producer: Producer, topic: str | None) -> None:
        self._producer, self._topic = producer, topic
        self._waiting: list[asyncio.Future[int]] = []

    async def send(self, batch: pa.RecordBatch) -> None:
        self._waiting = [each for each in self._waiting if not (each.done() and each.result() >= 0)]
        self._waiting.append(await self._producer.send_table(batch, self._topic))

    async def finish(self) -> None:
        """Return when everything is acknowledged."""
        await self._producer.flush()
        await asyncio.gather(*self._waiting)
