"""The protocol of the exactly-once sink without Spark: tasks and driver are called as Spark would call them.

Whoever dies at whatever step, the next run of the batch leaves every row in the topic once, for a reader of
committed records. With `--target=kafka` it is Apache Kafka that keeps the transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.arrow import read_range
from barnabas.client.consumer import Consumer, ConsumerConfig
from barnabas.client.errors import ProducerFenced, TransactionAborted
from barnabas.client.offsets import LATEST
from barnabas.spark import commits
from barnabas.spark.checks import SettingError
from barnabas.spark.commits import Committer, SplitChanged, TransactionLost
from barnabas.spark.driving import seams
from barnabas.spark.exactly_once import AlreadyFurther, Job, Report, TaskWrite, WriteGivenUp
from barnabas.spark.markers import BadMarkerTopic, Decision, Entry, transactional_id
from barnabas.spark.sink_options import WriteOptions, parse_write_options
from tests.support.targets import Target

Split = Sequence[Sequence[str]]  # the rows of each task
_numbers = count()


class Killed(BaseException):
    """The process is gone: nothing is cleaned up."""


def kill_at(number: int) -> Callable[[str], None]:
    """A process that is dead from that step on."""
    steps = count(1)

    def step(_: str) -> None:
        if next(steps) >= number:
            raise Killed

    return step


def kill_when(name: str) -> Callable[[str], None]:
    """A process that is dead from the step of that name on."""
    done = list[str]()

    def step(found: str) -> None:
        done.append(found)
        if name in done:
            raise Killed

    return step


class Sink:
    """A query that writes to a topic of its own."""

    def __init__(self, bootstrap: str, **options: str) -> None:
        self.topic = f"once-{next(_numbers)}"
        self.app = f"app-{self.topic}"
        given = {"kafka.bootstrap.servers": bootstrap, "topic": self.topic, **options}
        self.options: WriteOptions = parse_write_options(given, is_stream=True)
        self._bootstrap = bootstrap
        self._seen = -1  # the last batch of this run

    async def create(self) -> Sink:
        async with Admin(*seams(), self._bootstrap) as admin:
            await admin.create_topics([NewTopic(self.topic, 2, 1)])
        return self

    def restart(self) -> None:
        self._seen = -1

    def write_of(self, version: int) -> Job:
        """A batch write, instead of a stream's batch."""
        return Job(self.options, self.app, version, write=f"write-{next(_numbers)}")

    async def write(self, batch: int, split: Split, step: Callable[[str], None] = lambda _: None) -> None:
        """A batch as Spark has it written; restarted where the process is killed."""
        job = Job(self.options, self.app, batch)
        reports = [await self.task(job, number, rows, step) for number, rows in enumerate(split)]
        await self.commit(job, reports, step)
        self._seen = batch

    async def task(
        self, job: Job, number: int, rows: Sequence[str], step: Callable[[str], None] = lambda _: None
    ) -> Report:
        is_first = not 0 <= self._seen < job.batch
        return await TaskWrite(job, number, is_first, step).run(tables(rows))

    async def commit(
        self, job: Job, reports: Sequence[Report], step: Callable[[str], None] = lambda _: None
    ) -> None:
        async with Committer(self.options, self.app, step) as committer:
            try:
                await committer.commit(job, reports)
            except Exception:
                await committer.abort(job, reports)
                raise

    async def rows(self) -> list[str]:
        """What a reader of committed records finds; nothing may be left open before the end."""
        found = []
        async with Admin(*seams(), self._bootstrap) as admin:
            places = [(self.topic, 0), (self.topic, 1)]
            async with asyncio.timeout(10):  # markers may come after the answer to a commit
                while True:
                    stable = await admin.list_offsets(dict.fromkeys(places, LATEST), read_committed=True)
                    ends = await admin.list_offsets(dict.fromkeys(places, LATEST))
                    if ends == stable:
                        break
                    await asyncio.sleep(0.01)
        config = ConsumerConfig(read_committed=True)
        for place, end in ends.items():
            async with Consumer(*seams(), self._bootstrap, config) as consumer:
                async for batch in read_range(consumer, place, 0, end.offset):
                    found += [value.decode() for value in batch.column("value").to_pylist()]
        return sorted(found)


async def tables(rows: Sequence[str]) -> AsyncGenerator[pa.RecordBatch, None]:
    for start in range(0, len(rows), 2):
        some = list(rows[start : start + 2])
        yield pa.RecordBatch.from_pydict({"value": some, "key": some})


def batch_of(number: int, tasks: int = 2) -> list[list[str]]:
    """Rows of a batch, over so many tasks; they are the same rows however many tasks there are."""
    rows = [f"{number}/{row}" for row in range(6)]
    return [rows[task::tasks] for task in range(tasks)]


def flat(*splits: Split) -> list[str]:
    return sorted(row for split in splits for rows in split for row in rows)


@pytest.fixture
def sink(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Sink:
    monkeypatch.setattr(commits, "_AT_ONCE", 1)  # one after another: where it is killed is known
    return asyncio.run(Sink(bootstrap).create())


def test_batches_one_after_another(sink: Sink) -> None:
    async def work() -> None:
        for number in range(4):
            await sink.write(number, batch_of(number, tasks=1 + number % 3))
        await sink.write(4, [[], [], []])
        await sink.write(5, [[], ["last"], []])
        assert await sink.rows() == flat(*map(batch_of, range(4)), [["last"]])

    asyncio.run(work())


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 3), (3, 1)])
@pytest.mark.parametrize("is_run_new", [True, False])
def test_killed_at_any_step(sink: Sink, before: int, after: int, is_run_new: bool) -> None:
    """The batch of that number is killed at the step of that number; whoever is next finds what it needs."""

    async def work() -> int:
        for number in count(1):
            if is_run_new:
                sink.restart()
            try:
                await sink.write(number, batch_of(number, before), kill_at(number))
            except Killed:
                sink.restart()
                await sink.write(number, batch_of(number, after))
            else:
                assert await sink.rows() == flat(*(batch_of(each) for each in range(1, number + 1)))
                return number
        raise AssertionError

    steps = asyncio.run(work())
    assert steps > 3 * before  # written, prepared, ended, and more


@pytest.mark.parametrize("first", ["prepared", "decided", "ended 0", "ended 1"])
def test_killed_again_while_it_is_made_good(sink: Sink, first: str) -> None:
    async def work() -> None:
        for number in count(1):
            sink.restart()
            with pytest.raises(Killed):
                await sink.write(number, batch_of(number, 3), kill_when(first))
            try:
                await sink.write(number, batch_of(number, 2), kill_at(number))
            except Killed:
                await sink.write(number, batch_of(number, 4))
            else:
                assert await sink.rows() == flat(*(batch_of(each) for each in range(1, number + 1)))
                return

    asyncio.run(work())


@pytest.mark.parametrize("failing", ["compared", "decided", "ending 1", "ended 1"])
def test_a_commit_that_fails_is_aborted_or_left_to_the_next_run(sink: Sink, failing: str) -> None:
    def fail(step: str) -> None:
        if step == failing:
            raise OSError("no more")

    async def work() -> None:
        with pytest.raises(OSError, match="no more"):
            await sink.write(7, batch_of(7), fail)
        sink.restart()
        await sink.write(7, batch_of(7, tasks=3))
        assert await sink.rows() == flat(batch_of(7))

    asyncio.run(work())


def test_a_broker_that_is_killed_at_any_step(
    new_target: Callable[[Mapping[str, str]], Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks and driver go on as soon as it is back."""
    monkeypatch.setattr(commits, "_AT_ONCE", 1)
    target = new_target({})
    places = ["read", "initialised", "written", "prepared", "compared", "decided", "ending 1", "ended 1"]
    killed: list[str] = []

    def kill(step: str) -> None:
        if len(killed) < len(places) and step == places[len(killed)]:
            killed.append(step)
            target.kill()
            target.start()

    async def work() -> None:
        sink = await Sink(target.bootstrap).create()
        for number in range(4):
            sink.restart()
            await sink.write(number, batch_of(number), kill)
        assert killed == places
        assert await sink.rows() == flat(*map(batch_of, range(4)))

    asyncio.run(work())


def test_a_driver_that_wakes_up_late_commits_nothing(sink: Sink) -> None:
    async def work() -> None:
        job = Job(sink.options, sink.app, 0)
        sleeping = [await sink.task(job, number, rows) for number, rows in enumerate(batch_of(0))]
        await sink.write(0, batch_of(0))
        await sink.commit(job, sleeping)  # what it has is written: it has nothing to do
        await sink.write(1, batch_of(1))
        with pytest.raises(AlreadyFurther, match=r"batch 0 of query .* and its batch 1 is written already"):
            await sink.commit(job, sleeping)
        assert await sink.rows() == flat(batch_of(0), batch_of(1))

    asyncio.run(work())


@pytest.mark.parametrize("tasks", [2, 3])
def test_a_driver_that_wakes_up_when_it_was_about_to_decide(sink: Sink, tasks: int) -> None:
    """Another has written the batch with fewer tasks meanwhile: the decision comes too late to bind."""

    class Sleeping(Committer):
        async def _decide(self, decision: Decision) -> None:
            sink.restart()
            await sink.write(0, batch_of(0, 2))
            await super()._decide(decision)

    async def work() -> None:
        job = Job(sink.options, sink.app, 0)
        reports = [await sink.task(job, number, rows) for number, rows in enumerate(batch_of(0, 3))]
        async with Sleeping(sink.options, sink.app) as sleeping:
            with pytest.raises(TransactionLost, match="Nothing of the batch"):
                await sleeping.commit(job, reports)
            await sleeping.abort(job, reports)
        sink.restart()
        await sink.write(0, batch_of(0, tasks))
        await sink.write(1, batch_of(1, tasks))
        assert await sink.rows() == flat(batch_of(0), batch_of(1))

    asyncio.run(work())


def test_a_driver_that_wakes_up_when_others_have_begun(sink: Sink) -> None:
    """Their tasks have taken over what it decides on; it has to leave it to them."""

    async def work() -> None:
        job, others = Job(sink.options, sink.app, 0), list[Report]()

        class Sleeping(Committer):
            async def _decide(self, decision: Decision) -> None:
                sink.restart()
                others.extend([await sink.task(job, n, rows) for n, rows in enumerate(batch_of(0, 2))])
                await super()._decide(decision)

        reports = [await sink.task(job, number, rows) for number, rows in enumerate(batch_of(0, 3))]
        async with Sleeping(sink.options, sink.app) as sleeping:
            with pytest.raises(TransactionLost, match="task 0"):
                await sleeping.commit(job, reports)
        await sink.commit(job, others)
        assert await sink.rows() == flat(batch_of(0))

    asyncio.run(work())


def test_all_that_was_decided_timed_out(sink: Sink, bootstrap: str) -> None:
    """Then nothing of it is there, and it can be written by any number of tasks."""

    async def work() -> None:
        with pytest.raises(Killed):
            await sink.write(3, batch_of(3), kill_when("decided"))
        for task in (0, 1):
            await fence(bootstrap, sink.app, task)
        sink.restart()
        await sink.write(3, batch_of(3, tasks=3))
        assert await sink.rows() == flat(batch_of(3))

    asyncio.run(work())


def test_a_decision_that_ends_between_the_look_of_a_task_and_the_commit(sink: Sink, bootstrap: str) -> None:
    """A task that relied on it has left its rows out: the batch is not complete."""

    async def work() -> None:
        job = Job(sink.options, sink.app, 3)
        with pytest.raises(Killed):
            await sink.write(3, batch_of(3), kill_when("decided"))
        sink.restart()
        last = await sink.task(job, 2, batch_of(3, tasks=3)[2])  # which the decision does not name
        for task in (0, 1):
            await fence(bootstrap, sink.app, task)
        reports = [await sink.task(job, n, rows) for n, rows in enumerate(batch_of(3, tasks=3)[:2])]
        with pytest.raises(TransactionLost, match="was decided when task 2 looked"):
            await sink.commit(job, [*reports, last])
        assert await sink.rows() == []
        await sink.write(3, batch_of(3, tasks=3))
        assert await sink.rows() == flat(batch_of(3))

    asyncio.run(work())


def test_a_run_that_goes_on_beside_another_writes_nothing_twice(sink: Sink) -> None:
    """Its workers do not look at the markers any more, but whoever commits does."""

    async def work() -> None:
        await sink.write(0, batch_of(0))
        job = Job(sink.options, sink.app, 1)
        other = Sink.__new__(Sink)
        other.__dict__ |= sink.__dict__
        other.restart()
        await other.write(1, batch_of(1, 3))
        reports = [await sink.task(job, number, rows) for number, rows in enumerate(batch_of(1))]
        assert not any(each.is_first for each in reports)
        assert all(each.prepared for each in reports)
        await sink.commit(job, reports)
        assert await sink.rows() == flat(batch_of(0), batch_of(1))

    asyncio.run(work())


def test_a_transaction_that_was_taken_away_before_the_commit(sink: Sink, bootstrap: str) -> None:
    async def work() -> None:
        job = Job(sink.options, sink.app, 0)
        reports = [await sink.task(job, number, rows) for number, rows in enumerate(batch_of(0))]
        await fence(bootstrap, sink.app, 1)
        with pytest.raises(TransactionLost, match=r"task 1 .* is no longer open: .* Nothing of the batch"):
            await sink.commit(job, reports)
        assert await sink.rows() == []
        await sink.write(0, batch_of(0, tasks=5))
        assert await sink.rows() == flat(batch_of(0))

    asyncio.run(work())


@pytest.mark.parametrize("tasks", [2, 3])
@pytest.mark.parametrize("rows", ["the same", "others"])
def test_a_decided_transaction_that_timed_out(sink: Sink, bootstrap: str, tasks: int, rows: str) -> None:
    """It is written again if the rows are split as they were; else nobody could tell which are missing."""

    async def work() -> None:
        with pytest.raises(Killed):
            await sink.write(3, batch_of(3), kill_when("ended 0"))
        await fence(bootstrap, sink.app, 1)  # as its coordinator does in time
        sink.restart()
        split = batch_of(3, tasks) if rows == "the same" else [["other"] for _ in range(tasks)]
        if tasks == 2 and rows == "the same":
            await sink.write(3, split)
            await sink.write(4, batch_of(4))
            assert await sink.rows() == flat(batch_of(3), batch_of(4))
        else:
            with pytest.raises(SplitChanged, match=r"batch 3 of .* is partly committed") as error:
                await sink.write(3, split)
            assert ("there were 2 tasks and are 3" in str(error.value)) == (tasks == 3)
            assert await sink.rows() == batch_of(3)[0]

    asyncio.run(work())


def test_a_checkpoint_that_is_older_than_what_was_written(sink: Sink) -> None:
    async def work() -> None:
        await sink.write(17, batch_of(17))
        sink.restart()
        with pytest.raises(AlreadyFurther, match=r"this is batch 3 of query .* batch 17 is written already"):
            await sink.write(3, batch_of(3))
        assert await sink.rows() == flat(batch_of(17))

    asyncio.run(work())


def test_versions_of_a_batch_job(sink: Sink) -> None:
    """A version that was written, or an older one, is not written again."""

    async def write(version: int, row: str) -> None:
        job = sink.write_of(version)
        await sink.commit(job, [await sink.task(job, 0, [row])])
        sink.restart()

    async def work() -> None:
        for version, row in ((1, "a"), (1, "b"), (3, "c"), (2, "d"), (4, "e")):
            await write(version, row)
        assert await sink.rows() == ["a", "c", "e"]

    asyncio.run(work())


@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize("killed", ["decided", "ended 0"])
@pytest.mark.parametrize("is_failing", [False, True])
def test_a_decided_version_is_completed_by_the_next(
    sink: Sink, tasks: int, killed: str, is_failing: bool
) -> None:
    """A job that died in its commits need not be done again for its rows to be all there."""

    async def write(version: int, tasks: int, step: Callable[[str], None] = lambda _: None) -> None:
        sink.restart()
        job = sink.write_of(version)
        split = batch_of(version, tasks)
        await sink.commit(
            job, [await sink.task(job, number, rows) for number, rows in enumerate(split)], step
        )

    async def fail(version: int) -> None:
        job = sink.write_of(version)
        report = await sink.task(job, 0, batch_of(version)[0])
        async with Committer(sink.options, sink.app) as committer:
            await committer.abort(job, [report])

    async def work() -> None:
        with pytest.raises(Killed):
            await write(1, 3, kill_when(killed))
        if is_failing:
            await fail(2)
        await write(2, tasks)
        assert await sink.rows() == flat(batch_of(1), batch_of(2))

    asyncio.run(work())


@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize("late", ["read", "initialised", "begun", "written", "prepared", "ended"])
def test_a_write_that_is_given_up_leaves_nothing_open(sink: Sink, is_marked: bool, late: str) -> None:
    """However late a task is when Spark has the driver abort: it does not wait for those still at work."""
    job = sink.write_of(1)._replace(is_marked=is_marked)

    async def give_up() -> None:
        async with Committer(sink.options, sink.app) as committer:
            await committer.abort(job, [])

    def step(found: str) -> None:
        if found == late:  # a step is not awaited: another thread gives up meanwhile
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, give_up()).result()

    async def work() -> None:
        if late == "read" and not is_marked:
            step(late)  # which nobody reads then
        with suppress(WriteGivenUp, ProducerFenced, TransactionAborted):
            await TaskWrite(job, 0, True, step).run(tables(["late"]))
        if late == "ended":
            step(late)
        assert await sink.rows() == []
        sink.restart()
        again = sink.write_of(1)
        await sink.commit(again, [await sink.task(again, 0, ["again"])])
        assert await sink.rows() == ["again"]

    asyncio.run(work())


def test_a_task_that_comes_late_does_not_disturb_the_next_write(sink: Sink) -> None:
    async def work() -> None:
        given_up, again = sink.write_of(1), sink.write_of(1)
        async with Committer(sink.options, sink.app) as committer:
            await committer.abort(given_up, [])
        report = await sink.task(again, 0, ["again"])
        with pytest.raises(WriteGivenUp):
            await sink.task(given_up, 0, ["late"])
        await sink.commit(again, [report])
        assert await sink.rows() == ["again"]

    asyncio.run(work())


def test_a_write_that_is_given_up_after_one_that_was_cut_in_half(sink: Sink) -> None:
    """A task has the id of one whose transaction was decided, and aborted before it could be committed."""

    async def work() -> None:
        half, given_up = sink.write_of(1), sink.write_of(2)
        reports = [await sink.task(half, number, rows) for number, rows in enumerate(batch_of(1))]
        async with Committer(sink.options, sink.app, kill_when("ended 0")) as committer:
            with pytest.raises(Killed):
                await committer.commit(half, reports)
        async with Admin(*seams(), sink.options.bootstrap) as admin:
            await admin.fence_producers([transactional_id(sink.app, 1)])
        await sink.task(given_up, 1, ["late"])
        async with Committer(sink.options, sink.app) as committer:
            await committer.abort(given_up, [])
        assert await sink.rows() == sorted(batch_of(1)[0])

    asyncio.run(work())


def test_what_was_finished_of_one_decision_is_not_of_another(sink: Sink) -> None:
    """While a job completes its last write, another run of it comes half-way with this one."""
    job = sink.write_of(2)

    async def tasks(job: Job, split: Split) -> list[Report]:
        sink.restart()
        return [await sink.task(job, number, rows) for number, rows in enumerate(split)]

    class Slow(Committer):
        async def _finish(self, undone: Iterable[Entry], ours: Container[int]) -> set[Entry]:
            finished = await super()._finish(undone, ours)
            assert {entry.task for entry in finished} == {1, 2}
            with pytest.raises(Killed):
                await sink.commit(job, await tasks(job, batch_of(2)), kill_when("ended 0"))
            return finished

    async def work() -> None:
        earlier = job._replace(batch=1)
        with pytest.raises(Killed):
            await sink.commit(earlier, await tasks(earlier, batch_of(1, 3)), kill_when("decided"))
        reports = await tasks(job, batch_of(2, 1))
        async with Slow(sink.options, sink.app) as slow:
            with pytest.raises(SplitChanged, match="1 of its 2 tasks"):
                await slow.commit(job, reports)
            await slow.abort(job, reports)
        again = sink.write_of(2)
        await sink.commit(again, await tasks(again, batch_of(2)))
        assert await sink.rows() == flat(batch_of(1), batch_of(2))

    asyncio.run(work())


def test_fewer_tasks_leave_nothing_open(sink: Sink) -> None:
    async def work() -> None:
        for step in ("written", "prepared"):
            sink.restart()
            job = Job(sink.options, sink.app, 0)
            for number, rows in enumerate(batch_of(0, 4)):
                with suppress(Killed):
                    await sink.task(job, number, rows, kill_when(step))
        await sink.write(0, [["one"], []])
        assert await sink.rows() == ["one"]  # and that nothing is left open

    asyncio.run(work())


def test_open_transactions_of_other_queries_do_not_stand_in_the_way(sink: Sink, bootstrap: str) -> None:
    async def work() -> None:
        other = await Sink(bootstrap).create()
        open_one = await other.task(Job(other.options, other.app, 5), 0, ["open"])
        with pytest.raises(Killed):
            await sink.write(0, batch_of(0), kill_when("ended 1"))
        sink.restart()
        await sink.write(0, batch_of(0))
        assert await sink.rows() == flat(batch_of(0))
        await other.commit(Job(other.options, other.app, 5), [open_one])
        assert await other.rows() == ["open"]

    asyncio.run(work())


def test_the_marker_topic_must_be_compacted_and_nothing_else(bootstrap: str) -> None:
    async def work(topic: str, policy: str) -> None:
        sink = await Sink(bootstrap, markerTopic=topic).create()
        async with Admin(*seams(), bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, 1, 1, {"cleanup.policy": policy})])
        with pytest.raises(BadMarkerTopic, match=f"topic {topic} has cleanup.policy={policy}: "):
            await sink.write(0, batch_of(0))

    asyncio.run(work("markers-deleted", "delete"))
    asyncio.run(work("markers-both", "compact,delete"))


def test_a_transaction_may_not_last_longer_than_brokers_allow(bootstrap: str) -> None:
    async def work() -> None:
        options = {"kafka.transaction.timeout.ms": "900001"}
        sink = await Sink(bootstrap, **options).create()
        with pytest.raises(SettingError, match=r"kafka.transaction.timeout.ms=900001 .*max.timeout.ms"):
            await sink.write(0, batch_of(0))

    asyncio.run(work())


async def fence(bootstrap: str, app: str, task: int) -> None:
    async with Admin(*seams(), bootstrap) as admin:
        await admin.fence_producers([transactional_id(app, task)])
