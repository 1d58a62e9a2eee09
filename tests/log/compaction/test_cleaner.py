"""The background cleaner: what it takes first, what it leaves alone, and how it is stopped."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
from collections.abc import Awaitable, Callable

import pytest

from barnabas.core.clock import ManualClock
from barnabas.core.disk import DiskFailed
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log import housekeeping, names, trimming, untouched
from barnabas.log.checkpoints import TopicPartition, write_offset_checkpoint
from barnabas.log.compaction import cleaner as cleaner_module
from barnabas.log.compaction.cleaner import Cleaner
from barnabas.log.config import CleanerSettings, LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.housekeeping import Intervals, keep_house
from barnabas.log.partition import PartitionLog
from tests.support.log_fixtures import contents
from tests.support.logs import START_MS, batch, open_directory, read_all

COMPACT = frozenset({"compact"})
COMPACTED = LogConfig(cleanup_policy=COMPACT)
CHECKPOINT = names.CLEANER_CHECKPOINT
RECORDS = 10


class Bench:
    """A directory on a disk in memory, and a cleaner for it."""

    def __init__(self, config: LogConfig = COMPACTED, **settings: float) -> None:
        self.disk, self.clock = MemoryDisk(), ManualClock(START_MS)
        self.config = config
        self.settings = CleanerSettings(**{"dedupe_buffer_bytes": 1 << 20, **settings})  # type: ignore[arg-type]

    async def open(self) -> None:
        self.directory: LogDirectory = await open_directory(self.disk, self.config, self.clock)
        self.cleaner = Cleaner(self.directory, self.clock, lambda: self.settings)

    async def reopen(self) -> None:
        await self.directory.close()
        await self.open()

    async def log(self, partition: int = 0, rounds: int = 0, config: LogConfig | None = None) -> PartitionLog:
        """A log in which every round overwrites the one before, each in a segment of its own."""
        log = await self.directory.partition("t", partition, config=config)
        for _ in range(rounds):
            await log.append_as_leader(batch(RECORDS), 0)
            await log.roll()
        log.advance_high_watermark(log.end_offset)
        return log

    async def cleaned(self) -> str:
        return (await contents(self.disk, CHECKPOINT)).decode().split("\n", 1)[1]


def run(scenario: Callable[[Bench], Awaitable[None]], bench: Bench | None = None) -> None:
    async def opened() -> None:
        made = bench or Bench()
        await made.open()
        await scenario(made)

    asyncio.run(opened())


async def offsets_in(log: PartitionLog) -> list[int]:
    return [record.offset for record in await read_all(log)]


async def settle(turns: int = 200) -> None:
    """Let every task run until it waits for the clock: on a disk in memory nothing else is waited for."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def begun(bench: Bench) -> asyncio.Task[int]:
    """A compaction in the middle of which time stands still."""
    bench.settings = bench.settings._replace(max_bytes_per_second=1.0)
    task = asyncio.create_task(bench.cleaner.clean_all())
    await settle()
    assert bench.directory.being_cleaned is not None
    return task


# ---- what it takes, and in which order ------------------------------------------------------------------


def test_the_filthiest_comes_first_and_the_checkpoint_tells_of_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(bench: Bench) -> None:
        for partition in range(3):
            log = await bench.log(partition, rounds=4)
            log.cleaned_offset = (20, 0, 10)[partition]  # of 40: a half, all, three quarters is dirty
        assert await bench.cleaner.clean_all() == 2
        compacted = [line for line in caplog.messages if line.startswith("compacted")]
        assert [line.split()[1] for line in compacted] == ["t-1", "t-2"]
        assert "up to offset 40" in compacted[0]
        assert "10 of 40 records" in compacted[0]
        assert "1 of 4 segments" in compacted[0]
        assert await bench.cleaned() == "3\nt 0 20\nt 1 40\nt 2 40\n"
        assert await offsets_in(await bench.log(1)) == list(range(30, 40))
        assert len(await offsets_in(await bench.log(0))) == 40
        assert await bench.cleaner.clean_all() == 0

    with caplog.at_level(logging.INFO, "barnabas.cleaner"):
        run(scenario)


def test_what_is_not_compacted_is_left_alone() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.log(rounds=4, config=LogConfig())
        assert await bench.cleaner.clean_all() == 0
        log.config = COMPACTED  # as when a topic's settings change
        assert await bench.cleaner.clean_all() == 1
        log.config = LogConfig()
        await bench.log(rounds=4)
        assert await bench.cleaner.clean_all() == 0
        assert len(await offsets_in(log)) == RECORDS * 5

    run(scenario)


def test_a_map_that_is_too_small_takes_several_passes() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.log(rounds=4)
        assert await bench.cleaner.clean_all() > 1
        assert log.cleaned_offset == 40
        assert await offsets_in(log) == list(range(30, 40))

    # room for fewer keys than there are, and the log is due as long as anything is dirty
    dirty = LogConfig(cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.0)
    run(scenario, Bench(dirty, dedupe_buffer_bytes=24 * 8, load_factor=0.9))


@pytest.mark.parametrize("load_factor", [2.0, 0.0, -1.0, float("nan")])
def test_settings_that_allow_nothing_are_taken_for_the_least_that_works(load_factor: float) -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.log(rounds=4)
        task = asyncio.create_task(bench.cleaner.clean_all())
        while not task.done():
            await settle()
            bench.clock.advance(3600)
        assert await task == 1
        assert await offsets_in(log) == list(range(30, 40))

    run(scenario, Bench(io_buffer_bytes=0, load_factor=load_factor, max_bytes_per_second=0.0))


def test_a_rate_that_is_no_number_does_not_stop_compaction_for_good() -> None:
    """What is owed under NaN bytes a second would be owed for ever, under any later rate."""

    async def scenario(bench: Bench) -> None:
        await bench.log(rounds=4)
        task = asyncio.create_task(bench.cleaner.clean_all())
        await settle()
        bench.settings = bench.settings._replace(max_bytes_per_second=1e12)
        while not task.done():
            await settle()
            bench.clock.advance(3600)
        assert await task == 1
        assert bench.cleaner._throttle._paid_until == pytest.approx(bench.clock.monotonic(), abs=1e7)

    run(scenario, Bench(max_bytes_per_second=float("nan")))


def test_max_compaction_lag_makes_a_log_due_that_is_hardly_dirty() -> None:
    async def scenario(bench: Bench) -> None:
        config = LogConfig(
            cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=60_000
        )
        log = await bench.log(rounds=4, config=config)
        log.cleaned_offset = 30
        assert await bench.cleaner.clean_all() == 0
        bench.clock.advance(61)
        assert await bench.cleaner.clean_all() == 1
        assert log.cleaned_offset == 40

    run(scenario)


def test_what_nobody_has_touched_is_opened_only_if_it_may_be_dirty() -> None:
    async def scenario(bench: Bench) -> None:
        for partition in range(4):
            await bench.log(partition, rounds=4 if partition % 2 else 0)
        (await bench.log(3)).cleaned_offset = 40
        await bench.reopen()
        assert await bench.cleaner.clean_all() == 1
        assert [bench.directory.opened("t", partition) is not None for partition in range(4)] == [
            False,
            True,
            False,
            False,
        ]
        looked_at: list[str] = []
        bench.disk.before = lambda operation, path: looked_at.append(path)
        listdir = bench.disk.listdir

        async def listed(path: str) -> list[str]:
            looked_at.append(path)
            return await listdir(path)

        bench.disk.listdir = listed  # type: ignore[method-assign]
        assert await bench.cleaner.clean_all() == 0
        assert looked_at == []  # nobody appends to what nobody opened: one look is enough

    run(scenario)


def test_a_checkpoint_that_cannot_be_is_reset(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.log(rounds=4)
        await bench.directory.close()
        await write_offset_checkpoint(bench.disk, CHECKPOINT, {("t", 0): 5})
        await bench.open()
        log = await bench.log()
        await trimming.delete_records(log, 10)
        assert await bench.cleaner.clean_all() == 1
        assert await bench.cleaned() == "1\nt 0 40\n"
        assert await offsets_in(log) == list(range(30, 40))

    with caplog.at_level(logging.INFO, "barnabas.cleaner"):
        run(scenario)
    assert "t-0 was compacted up to offset 5, which is not in the log; all from 10 on counts as dirty" in (
        caplog.messages
    )


# ---- what goes wrong -------------------------------------------------------------------------------------


def test_a_log_that_cannot_be_compacted_does_not_keep_others_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(bench: Bench) -> None:
        for partition in range(2):
            await bench.log(partition, rounds=4)
        bench.disk.fail("read", errno.EIO, path_glob="t-0/*.log")
        await bench.cleaner.clean_all()
        assert await bench.cleaned() == "1\nt 1 40\n"
        bench.disk.heal()
        assert len(await offsets_in(await bench.log(0))) == 40
        assert await bench.cleaner.clean_all() == 0  # left alone, although the disk is well again
        assert not [name for name in await bench.disk.listdir("t-0") if name.endswith(names.CLEANED)]
        await bench.reopen()
        assert await bench.cleaner.clean_all() == 1
        assert await bench.cleaned() == "2\nt 1 40\nt 0 40\n"

    run(scenario)
    (line,) = [line for line in caplog.messages if line.startswith("cannot compact")]
    assert "t-0/" in line
    assert "until the node starts anew" in line


def test_another_log_of_the_same_name_is_not_the_one_that_failed() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.log(rounds=4)
        bench.disk.fail("read", errno.EIO, path_glob="t-0/*.log")
        await bench.cleaner.clean_all()
        bench.disk.heal()
        await bench.directory.delete_partition("t", 0)
        await bench.log(rounds=4)
        assert await bench.cleaner.clean_all() == 1

    run(scenario)


def test_a_full_disk_is_tried_again_in_the_next_round(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        for partition in range(2):
            await bench.log(partition, rounds=4)
        bench.disk.fail("append", errno.ENOSPC, path_glob="t-0/*.cleaned")
        assert await bench.cleaner.clean_all() == 2
        assert await bench.cleaned() == "1\nt 1 40\n"
        log = await bench.log(0)
        assert log.failure is None
        bench.disk.heal()
        assert await bench.cleaner.clean_all() == 1
        assert await offsets_in(log) == list(range(30, 40))

    run(scenario)
    (line,) = [line for line in caplog.messages if line.startswith("cannot compact")]
    assert "tried again in the next round" in line


def test_a_fault_of_the_program_in_one_log_is_told_with_its_trace(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*arguments: object, **named: object) -> None:
        raise ZeroDivisionError("in the cleaner")

    async def scenario(bench: Bench) -> None:
        await bench.log(rounds=4)
        monkeypatch.setattr(cleaner_module, "clean", broken)
        assert await bench.cleaner.clean_all() == 1
        assert await bench.cleaner.clean_all() == 0

    run(scenario)
    assert "cannot compact t-0: in the cleaner" in caplog.text
    assert "Traceback" in caplog.text


def test_a_log_that_failed_is_not_looked_at() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.log(rounds=4)
        log.fail(OSError("gone"))
        assert await bench.cleaner.clean_all() == 0

    run(scenario)


# ---- how it is stopped -----------------------------------------------------------------------------------


def test_it_stops_at_once_in_the_middle_and_leaves_the_log_as_it_was() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.log(rounds=4)
        task = await begun(bench)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bench.directory.being_cleaned is None
        assert len(await offsets_in(log)) == 40
        assert not [name for name in await bench.disk.listdir("t-0") if name.endswith(names.CLEANED)]
        await bench.reopen()
        assert bench.directory.was_clean
        bench.settings = CleanerSettings()
        assert await bench.cleaner.clean_all() == 1
        assert await offsets_in(await bench.log()) == list(range(30, 40))

    run(scenario)


def test_a_compaction_that_fails_while_it_is_stopped_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Bench) -> None:
        has_begun, may_fail = asyncio.Event(), asyncio.Event()

        async def fails(*_: object, **__: object) -> None:
            has_begun.set()
            await may_fail.wait()
            raise DiskFailed("the disk is gone")

        monkeypatch.setattr(cleaner_module, "clean", fails)
        await bench.log(rounds=4)
        task = asyncio.create_task(bench.cleaner.clean_all())
        await has_begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        may_fail.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scenario)
    gc.collect()
    # the pure kernel says of itself, with a warning, that it serves
    assert [record.name for record in caplog.records if record.levelno >= logging.ERROR] == [
        "barnabas.cleaner"
    ]


def test_a_partition_that_is_deleted_does_not_wait_for_its_compaction() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.log(0, rounds=4)
        await bench.log(1, rounds=3)
        task = await begun(bench)
        await asyncio.wait_for(bench.directory.delete_partition("t", 0), 60)
        bench.settings = bench.settings._replace(max_bytes_per_second=1e12)
        bench.clock.advance(3600)  # what was read for the first is still to be paid for
        await task
        assert await bench.cleaned() == "1\nt 1 30\n"
        assert bench.directory.partitions == [("t", 1)]
        assert await offsets_in(await bench.log(0, rounds=1)) == list(range(10))

    run(scenario)


def test_a_partition_that_is_deleted_before_it_is_opened_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.log(rounds=4)
        await bench.reopen()
        may_be_dirty = untouched.may_be_dirty

        async def deleted_meanwhile(directory: LogDirectory, key: TopicPartition) -> bool:
            is_dirty = await may_be_dirty(directory, key)
            await directory.delete_partition(*key)
            return is_dirty

        monkeypatch.setattr(untouched, "may_be_dirty", deleted_meanwhile)
        assert await bench.cleaner.clean_all() == 0
        assert bench.directory.partitions == []
        assert await bench.disk.listdir("t-0") == []

    run(scenario)


def test_a_topic_that_is_not_compacted_any_more_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.log(rounds=4)
        task = await begun(bench)
        log.config = LogConfig()
        bench.clock.advance(3600)
        await task
        assert len(await offsets_in(log)) == 40

    with caplog.at_level(logging.INFO, "barnabas.cleaner"):
        run(scenario)
    assert "the compaction of t-0 is given up: its topic is not compacted any more" in caplog.messages


def test_a_log_that_is_cut_meanwhile_is_given_up_and_taken_up_again() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.log(rounds=4)
        task = await begun(bench)
        await trimming.truncate_to(log, 25)
        bench.settings = bench.settings._replace(max_bytes_per_second=1e12)
        bench.clock.advance(3600)
        await task
        assert log.cleaned_offset is None
        assert await offsets_in(log) == list(range(20))
        await bench.log(rounds=2)
        await bench.cleaner.clean_all()
        assert await offsets_in(log) == list(range(30, 40))

    run(scenario)


def test_the_throttle_holds_it_to_its_rate() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.log(rounds=4)
        size_bytes = log.size_bytes
        bench.settings = bench.settings._replace(max_bytes_per_second=size_bytes / 10)
        task = asyncio.create_task(bench.cleaner.clean_all())
        seconds = 0.0
        while not task.done():
            await settle()
            bench.clock.advance(0.1)
            seconds += 0.1
        # all of it is read twice, once for the map, and a quarter is written
        assert 22 <= seconds <= 24

    run(scenario)


# ---- beside retention, and as part of the housekeeping ---------------------------------------------------


def test_retention_keeps_off_what_is_being_compacted_and_comes_afterwards() -> None:
    async def scenario(bench: Bench) -> None:
        old = await bench.log(rounds=4)
        task = await begun(bench)
        bench.clock.advance(0.001)
        assert await housekeeping.apply_retention(bench.directory) == 0
        bench.settings = bench.settings._replace(max_bytes_per_second=1e12)
        bench.clock.advance(3600)
        await task
        assert old.cleaned_offset == 40
        assert old.start_offset == 40
        assert await offsets_in(old) == []

    both = LogConfig(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=0)
    run(scenario, Bench(both))


def test_what_is_only_compacted_goes_when_it_is_before_the_start() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.log(rounds=4)
        await trimming.delete_records(log, 25)
        assert await housekeeping.apply_retention(bench.directory) == 2
        await bench.cleaner.clean_all()
        assert await offsets_in(log) == list(range(30, 40))
        assert log.start_offset == 25

    run(scenario)


def test_housekeeping_compacts_every_so_often() -> None:
    async def scenario(bench: Bench) -> None:
        asked = []

        def settings() -> CleanerSettings:
            asked.append(bench.clock.monotonic())
            return CleanerSettings(backoff_ms=2000)

        log = await bench.log(rounds=4)
        house = asyncio.create_task(keep_house(bench.directory, bench.clock, Intervals(), settings))
        await settle()
        bench.clock.advance(1.9)
        await settle()
        assert log.cleaned_offset is None
        bench.clock.advance(0.1)
        await settle(1000)
        assert log.cleaned_offset == 40
        for expected in (80, 120):
            await bench.log(rounds=4)
            bench.clock.advance(2)
            await settle(1000)
            assert log.cleaned_offset == expected
        house.cancel()
        with pytest.raises(asyncio.CancelledError):
            await house

    run(scenario)


def test_housekeeping_without_a_cleaner_compacts_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        log = await bench.log(rounds=4)
        house = asyncio.create_task(keep_house(bench.directory, bench.clock, Intervals()))
        for _ in range(60):
            bench.clock.advance(1)
            await settle(20)
        assert log.cleaned_offset is None
        house.cancel()
        with pytest.raises(asyncio.CancelledError):
            await house

    run(scenario)
