"""Exactly once, the driver's part: commits a batch whose tasks have prepared their transactions.

    read the markers      Has another run written this batch meanwhile? Then little or nothing is left to do.
    fence (first batch)   The application's other open transactions, left by earlier runs: they would block
                          read_committed consumers, or be committed by an earlier run that resumes late.
    decide                With more than one transaction: the decision is written, and acknowledged.
    look                  Are all transactions still open? If not, nothing is committed, and the decision
                          is not binding: a driver that was replaced while it was suspended detects it here.
    end                   Each transaction.

A failure before the decision aborts the batch. After the decision the batch fails only if a transaction is
gone: the next run commits the rest. A single transaction needs no decision: its end is the decision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterable, Sequence
from types import TracebackType

from barnabas.client.admin import Admin
from barnabas.client.errors import ClientError
from barnabas.client.producer import Producer
from barnabas.core.errors import BarnabasError
from barnabas.spark.driving import seams
from barnabas.spark.exactly_once import Job, Report, Step, finish, not_told
from barnabas.spark.markers import (
    PARTITION,
    Decision,
    Entry,
    MarkerLog,
    decision_key,
    decision_value,
    given_up_id,
    task_of,
)
from barnabas.spark.sink_options import WriteOptions

logger = logging.getLogger("barnabas.spark")

Prepared = dict[int, Report]  # by task

_OPEN = "Ongoing"
_UNDER_WAY = (_OPEN, "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_STARTING = "Empty"
_AT_ONCE = 32  # transactions ended concurrently


class TransactionLost(ClientError):
    """A prepared transaction was ended by another client before it could be committed."""


class SplitChanged(ClientError):
    """A partly committed batch cannot be completed: its rows are distributed over tasks in another way."""


class Committer:
    """Commits the batches of one application, one after another."""

    def __init__(self, options: WriteOptions, app: str, step: Step = not_told) -> None:
        self._options, self._app, self._step = options, app, step
        self._admin = Admin(*seams(), options.bootstrap, options.admin_client)
        self._log = MarkerLog(self._admin, options.bootstrap, options.marker_topic, app)
        self._producer = Producer(*seams(), options.bootstrap, options.producer._replace(linger_ms=0))

    async def __aenter__(self) -> Committer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._producer.close(timeout_ms=0)
        await self._log.close()
        await self._admin.close()

    async def commit(self, job: Job, reports: Sequence[Report]) -> None:
        """Commit the batch that these tasks wrote, all of it or nothing."""
        ours = {each.task: each for each in reports if each.prepared is not None}
        decision: Decision | None = None
        if job.is_marked:
            ours, decision = await self._compare(job, reports, ours)
            self._step("compared")
        if not ours:
            return
        entries = {each.task: each for each in (decision.entries if decision else ())}
        entries |= {task: each.entry() for task, each in ours.items()}
        if job.is_marked and len(entries) > 1:
            await self._decide(Decision(job.batch, len(reports), tuple(entries.values())))
            self._step("decided")
        if len(ours) > 1:
            await self._look(ours)
        await self._end(ours.values(), commit=True)

    async def abort(self, job: Job, reports: Iterable[Report]) -> None:
        """Abort what tasks have prepared, except for decided transactions, and what failed tasks have left
        open. If that fails, it is left to the next run, or to the transactions' timeout."""
        decision, undone = None, list[Entry]()
        await self._leave_a_sign(job)  # before looking for the others
        try:
            if job.is_marked:
                markers = await self._log.read()
                decision = job.binding(markers)
                # the id of an aborted transaction may belong to another task by now
                undone = [each for each in markers.undone(decision) if markers.is_open(each)]
        except BarnabasError as error:
            logger.warning("batch %d of %s is left as it is: %s", job.batch, job.app, error)
            return
        ours = [each for each in reports if each.prepared is not None]
        decided = [each for each in ours if decision is not None and each.entry() in decision.entries]
        if decided:
            logger.warning("batch %d of %s is decided, and left to be committed", job.batch, job.app)
        await self._end((each for each in ours if each not in decided), commit=False)
        try:
            states = _UNDER_WAY if job.is_stream else (*_UNDER_WAY, _STARTING)
            await self._fence_others({entry.task for entry in undone}, states)
        except BarnabasError as error:
            logger.warning("what tasks of %s left open stays so: %s", job.app, error)

    async def _leave_a_sign(self, job: Job) -> None:
        """Leave a sign for late tasks; without it they leave a transaction to its timeout."""
        if job.write is not None:
            try:
                await self._admin.fence_producers([given_up_id(job.app, job.write)])
            except BarnabasError as error:
                logger.warning("tasks of %s are not told that it is given up: %s", job.app, error)

    # ---- other runs ----------------------------------------------------------------------------------------

    async def _compare(
        self, job: Job, reports: Sequence[Report], ours: Prepared
    ) -> tuple[Prepared, Decision | None]:
        """The prepared transactions to commit, by the markers, and the decision that they belong to."""
        finished: set[Entry] = set()
        markers = await self._log.read()
        if undone := markers.undone(job.binding(markers)):
            finished = await self._finish(undone, ours)
        if undone or any(each.is_first for each in reports):
            await self._fence_others(ours)  # this waits until commits under way are in the log
            markers = await self._log.read()
        newest = markers.newest_batch
        if newest < job.batch:
            _check_complete(job, reports)
            return ours, None
        if newest > job.batch and job.is_stream:
            raise job.further(newest)
        decision = markers.decided(job.batch)
        if decision is None:  # an earlier run has committed all of it
            await self._end(ours.values(), commit=False)
            return {}, None
        missing = [entry for entry in markers.undone(decision) if entry not in finished]
        self._check_same_split(job, reports, ours, decision, missing)
        again = {entry.task: ours[entry.task] for entry in missing}
        await self._end((each for task, each in ours.items() if task not in again), commit=False)
        return again, decision

    async def _finish(self, undone: Iterable[Entry], ours: Container[int]) -> set[Entry]:
        """Commit decided transactions that are still open, except for tasks that have written again: theirs
        were aborted."""
        others = [entry for entry in undone if entry.task not in ours]
        return {entry for entry in others if await finish(self._admin, self._app, entry)}

    def _check_same_split(
        self, job: Job, reports: Sequence[Report], ours: Prepared, decision: Decision, missing: list[Entry]
    ) -> None:
        if not missing:
            return
        differing = [
            f"task {entry.task} had {_size(entry)} and has {_size(ours.get(entry.task))}"
            for entry in missing
            if entry.task not in ours or ours[entry.task].entry()[-2:] != entry[-2:]
        ]
        if len(reports) != decision.tasks:
            differing.append(f"there were {decision.tasks} tasks and are {len(reports)}")
        if differing:
            raise SplitChanged(
                f"batch {job.batch} of {job.app} is partly committed, and the transactions of {len(missing)} "
                f"of its {decision.tasks} tasks were aborted before they could be: the query was away for "
                f"longer than kafka.transaction.timeout.ms, or another run of it took over meanwhile. To "
                f"write just those again the rows must come as they did, but {'; '.join(differing[:3])}. Run "
                f"with the settings of that time (shuffle partitions, minPartitions, adaptive execution), or "
                f"run this one batch with deliveryGuarantee=at-least-once, which writes all of its rows again"
            )

    async def _fence_others(self, ours: Container[int], states: Iterable[str] = _UNDER_WAY) -> None:
        listed = await self._admin.list_transactions(states=states)
        others = [
            each.transactional_id
            for each in listed
            if (task := task_of(self._app, each.transactional_id)) is not None and task not in ours
        ]
        if others:
            logger.info("ending transactions that earlier runs left open: %s", ", ".join(others))
            await self._admin.fence_producers(others)
            self._step("fenced")

    # ---- transactions of this run ------------------------------------------------------------------------

    async def _look(self, ours: Prepared) -> None:
        """TransactionLost if one of several transactions cannot be committed any more: then none is."""
        prepared = {task: each.prepared for task, each in ours.items() if each.prepared is not None}
        found = await self._admin.describe_transactions(each.transactional_id for each in prepared.values())
        for task, each in prepared.items():
            now = found[each.transactional_id]
            if (now.state, now.producer_id, now.producer_epoch) != (_OPEN, each.producer_id, each.epoch):
                raise TransactionLost(
                    f"the transaction of task {task} ({each.transactional_id}) is no longer open: "
                    f"{now.state}, producer {now.producer_id} epoch {now.producer_epoch} instead of "
                    f"{each.producer_id} epoch {each.epoch}. Either it took longer than "
                    f"kafka.transaction.timeout.ms, or another run of the query, or another attempt of the "
                    f"task, has taken over. Nothing of the batch is committed; start again"
                )

    async def _decide(self, decision: Decision) -> None:
        value, key = decision_value(decision), decision_key(self._app)
        await (await self._producer.send(self._options.marker_topic, value, key, PARTITION))

    async def _end(self, reports: Iterable[Report], *, commit: bool) -> None:
        """End transactions; a failed abort is only logged."""
        turns = asyncio.Semaphore(_AT_ONCE)

        async def end(report: Report) -> None:
            assert report.prepared is not None
            async with turns:
                self._step(f"ending {report.task}")
                try:
                    await self._admin.end_transaction(report.prepared, commit=commit)
                except BarnabasError as error:
                    if commit:
                        raise
                    logger.info("a transaction was not aborted: %s", error)
            self._step(f"ended {report.task}")

        done = await asyncio.gather(*map(end, reports), return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException):
                raise each


def _check_complete(job: Job, reports: Iterable[Report]) -> None:
    """TransactionLost if tasks have left out their rows because of a decision that is no longer binding."""
    passed_over = [each.task for each in reports if each.is_passed_over]
    if passed_over:
        raise TransactionLost(
            f"batch {job.batch} of {job.app} was decided when task {passed_over[0]} looked, and its "
            f"transactions were aborted before they could be committed: they took longer than "
            f"kafka.transaction.timeout.ms, or another run of the query has taken over. Nothing of the batch "
            f"is committed; start again"
        )


def _size(report: Report | Entry | None) -> str:
    return "none" if report is None else f"{report.rows} rows of {report.bytes_} bytes"
