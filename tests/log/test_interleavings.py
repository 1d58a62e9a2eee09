"""What happens when one thing overtakes another, or is cancelled, while the disk takes its time."""

from __future__ import annotations

import asyncio
import errno

import pytest

from barnabas.core.disk import DiskFailed
from barnabas.core.errors import OffsetOutOfRange, StorageError
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from barnabas.log import housekeeping, reading, trimming
from barnabas.log.checkpoints import read_leader_epochs
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory, PartitionDeleted
from barnabas.log.partition import Bound, Interrupted, LogClosed, PartitionLog
from tests.support.log_fixtures import WatchedDisk, path_of
from tests.support.logs import batch, open_directory, read_all, values


async def fresh(config: LogConfig | None = None) -> tuple[WatchedDisk, LogDirectory, PartitionLog]:
    disk = WatchedDisk(MemoryDisk())
    directory = await open_directory(disk, config)
    return disk, directory, await directory.partition("t", 0)


async def settle() -> None:
    """Let every task go on as far as it can without what the test holds back."""
    for _ in range(20):
        await asyncio.sleep(0)


# --- reads


def test_a_read_that_a_truncation_leaves_without_its_bytes_starts_over() -> None:
    async def scenario() -> None:
        disk, _, log = await fresh(LogConfig(index_interval_bytes=1))
        for value in (b"kept", b"old", b"older"):
            await log.append_as_leader(batch([value]), 0)
        gate = disk.gate("read", "*.log")
        looking = asyncio.create_task(reading.read(log, 2, 1 << 20, Bound.LOG_END))
        await gate.reached.wait()
        await trimming.truncate_to(log, 1)
        gate.open()
        with pytest.raises(OffsetOutOfRange, match="not between 0 and 1"):
            await looking

    asyncio.run(scenario())


def test_a_read_whose_segment_is_gone_starts_over() -> None:
    async def scenario() -> None:
        disk, _, log = await fresh()
        await log.append_as_leader(batch(2), 0)
        await log.roll()
        await log.append_as_leader(batch(2), 0)
        gate = disk.gate("read", path_of(2, ".log"))
        looking = asyncio.create_task(reading.read(log, 2, 1 << 20, Bound.LOG_END))
        await gate.reached.wait()
        await trimming.truncate_to(log, 2)
        gate.open()
        assert (await looking).range is None

    asyncio.run(scenario())


def test_a_read_below_a_start_that_moved_meanwhile_is_out_of_range() -> None:
    """Anything else would skip records without a word."""

    async def scenario() -> None:
        disk, _, log = await fresh(LogConfig(retention_bytes=0, file_delete_delay_ms=0))
        await log.append_as_leader(batch(2), 0)
        await log.roll()
        await log.append_as_leader(batch(1), 0)
        log.advance_high_watermark(2)
        gate = disk.gate("read", path_of(0, ".log"))
        looking = asyncio.create_task(reading.read(log, 0, 1 << 20))
        await gate.reached.wait()
        assert await trimming.apply_retention(log) == 1
        gate.open()
        with pytest.raises(OffsetOutOfRange):
            await looking

    asyncio.run(scenario())


def test_readers_that_open_a_file_at_once_share_it() -> None:
    """Whoever pins it keeps it from being removed."""

    async def scenario() -> None:
        disk, directory, log = await fresh()
        await log.append_as_leader(batch(2), 0)
        await log.roll()
        await log.append_as_leader(batch(2), 0)
        await directory.close()
        log = await (await open_directory(disk)).partition("t", 0)
        gate = disk.gate("open", path_of(0, ".log"))
        first = asyncio.create_task(log.segments[0].file())
        await gate.reached.wait()
        second = await log.segments[0].file()
        gate.open()
        assert await first is second

    asyncio.run(scenario())


# --- flushes


def test_a_flush_that_waits_for_a_truncation_does_not_keep_a_close_waiting() -> None:
    async def scenario() -> None:
        disk, directory, log = await fresh()
        for _ in range(3):
            await log.append_as_leader(batch(1), 0)
        gate = disk.gate("sync", "*.log")
        cutting = asyncio.create_task(trimming.truncate_to(log, 2))
        await gate.reached.wait()
        closing = asyncio.create_task(directory.close())
        await settle()
        flushing = asyncio.create_task(log.flush())
        await settle()
        gate.open()
        await asyncio.wait_for(asyncio.gather(cutting, closing, flushing, return_exceptions=True), 60)
        assert (await open_directory(disk)).was_clean

    asyncio.run(scenario())


def test_epochs_whose_writing_was_cancelled_are_written_by_the_next_flush() -> None:
    async def scenario() -> None:
        disk, _, log = await fresh()
        await log.append_as_leader(batch(2), 4)
        gate = disk.gate("append", "*leader-epoch-checkpoint*")
        flushing = asyncio.create_task(log.flush())
        await gate.reached.wait()
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing
        await log.flush()
        inner = disk.inner
        assert isinstance(inner, MemoryDisk)
        inner.crash_power(SeededRandom(1))
        assert log.recovery_point == 2
        assert await inner.size_of("t-0/leader-epoch-checkpoint")

    asyncio.run(scenario())


def test_a_fresh_start_has_the_last_word_on_the_epochs() -> None:
    """A flush that is writing those of before is waited for."""

    async def scenario() -> None:
        disk, _, log = await fresh()
        await log.append_as_leader(batch(2), 4)
        gate = disk.gate("append", "*leader-epoch-checkpoint*")
        flushing = asyncio.create_task(log.flush())
        await gate.reached.wait()
        starting = asyncio.create_task(trimming.truncate_fully_and_start_at(log, 0))
        await settle()
        gate.open()
        await asyncio.gather(flushing, starting)
        assert await read_leader_epochs(disk, "t-0/leader-epoch-checkpoint") == []

    asyncio.run(scenario())


def test_housekeeping_passes_over_a_log_that_starts_over() -> None:
    async def scenario() -> None:
        disk, directory, log = await fresh()
        await log.append_as_leader(batch(2), 4)
        await log.roll()
        gate = disk.gate("append", "*leader-epoch-checkpoint*")
        starting = asyncio.create_task(trimming.truncate_fully_and_start_at(log, 7))
        await gate.reached.wait()
        assert log.segments == []
        directory.to_flush.add(log)
        await housekeeping.write_index_entries(directory)
        flushing = asyncio.create_task(housekeeping.flush_due(directory))
        await settle()
        gate.open()
        await asyncio.gather(flushing, starting)
        assert log.end_offset == 7

    asyncio.run(scenario())


# --- rolls


async def _cancelled_roll(disk: WatchedDisk, log: PartitionLog) -> None:
    """A roll whose caller goes away when the new segment's file is there."""

    async def open_slowly(path: str, *, create: bool = False) -> object:
        file = await opened(path, create=create)
        if path == path_of(1, ".log"):
            await asyncio.Event().wait()
        return file

    opened, disk.open = disk.open, open_slowly  # type: ignore[assignment, method-assign]
    rolling = asyncio.create_task(log.roll())
    await settle()
    for _ in range(3):  # by several who want to be rid of it
        rolling.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await rolling
    disk.open = opened  # type: ignore[method-assign]


@pytest.mark.parametrize("crash", ["none", "process", "power"])
def test_a_roll_that_was_cancelled_hides_nothing_that_is_appended_later(crash: str) -> None:
    async def scenario() -> None:
        disk, _, log = await fresh()
        await log.append_as_leader(batch([b"first"]), 0)
        await _cancelled_roll(disk, log)
        await log.append_as_leader(batch([b"second"]), 0)
        await log.flush()
        inner = disk.inner
        assert isinstance(inner, MemoryDisk)
        if crash != "none":
            inner.crash_process() if crash == "process" else inner.crash_power(SeededRandom(1))
            log = await (await open_directory(inner)).partition("t", 0)
        await log.roll()
        await log.append_as_leader(batch([b"third"]), 0)
        assert values(await read_all(log)) == [b"first", b"second", b"third"]

    asyncio.run(scenario())


def test_a_cancelled_roll_that_cannot_be_undone_is_recovered_by_the_next_start() -> None:
    async def scenario() -> None:
        disk, _, log = await fresh()
        await log.append_as_leader(batch([b"first"]), 0)

        async def refuse(path: str) -> None:
            raise StorageError(f"cannot remove {path}")

        disk.remove = refuse  # type: ignore[method-assign]
        await _cancelled_roll(disk, log)
        with pytest.raises(Interrupted):
            await log.append_as_leader(batch([b"second"]), 0)
        inner = disk.inner
        assert isinstance(inner, MemoryDisk)
        inner.crash_process()
        log = await (await open_directory(inner)).partition("t", 0)
        await log.append_as_leader(batch([b"second"]), 0)
        assert values(await read_all(log)) == [b"first", b"second"]

    asyncio.run(scenario())


def test_whoever_waits_for_an_opening_does_not_bring_back_what_is_deleted_meanwhile() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        opening, renaming = disk.gate("mkdir", "t-0"), disk.gate("rename", "t-0")

        async def open_and_delete() -> PartitionLog:
            log = await directory.partition("t", 0)
            await directory.delete_partition("t", 0)
            return log

        first = asyncio.create_task(open_and_delete())
        await opening.reached.wait()
        second = asyncio.create_task(directory.partition("t", 0))
        await settle()
        opening.open()
        await settle()
        renaming.open()
        assert await second is await first
        assert directory.partitions == []

    asyncio.run(scenario())


def test_a_deletion_that_fails_leaves_the_partition_as_it_was() -> None:
    async def scenario() -> None:
        inner = MemoryDisk()
        directory = await open_directory(inner)
        log = await directory.partition("t", 0)
        await log.append_as_leader(batch([b"old"]), 0)
        inner.fail("rename", errno.EIO, path_glob="t-0", times=1)
        with pytest.raises(DiskFailed):
            await directory.delete_partition("t", 0)
        assert directory.partitions == [("t", 0)]
        assert values(await read_all(await directory.partition("t", 0))) == [b"old"]
        await directory.delete_partition("t", 0)
        assert directory.partitions == []

    asyncio.run(scenario())


def test_a_flush_under_way_is_over_before_a_deleted_partition_gives_up_its_name() -> None:
    async def scenario() -> None:
        disk, directory, log = await fresh()
        await log.append_as_leader(batch(2), 4)
        gate = disk.gate("append", "*leader-epoch-checkpoint*")
        flushing = asyncio.create_task(log.flush())
        await gate.reached.wait()
        deleting = asyncio.create_task(directory.delete_partition("t", 0))
        await settle()
        creating = asyncio.create_task(directory.partition("t", 0))
        await settle()
        assert not creating.done()
        gate.open()
        await asyncio.gather(flushing, deleting, creating, return_exceptions=True)
        assert (await creating).epochs.entries == ()
        assert await disk.size_of("t-0/leader-epoch-checkpoint") is None
        with pytest.raises(PartitionDeleted):
            await log.append_as_leader(batch(1), 4)

    asyncio.run(scenario())


def test_two_sweeps_may_overlap() -> None:
    async def scenario() -> None:
        disk, _, log = await fresh(LogConfig(retention_bytes=0, file_delete_delay_ms=0))
        await log.append_as_leader(batch(2), 0)
        await log.roll()
        log.advance_high_watermark(2)
        assert await trimming.apply_retention(log) == 1
        gate = disk.gate("remove", "*.deleted")
        first = asyncio.create_task(trimming.sweep(log))
        await gate.reached.wait()
        await trimming.sweep(log)
        gate.open()
        await first
        assert log.doomed == []
        assert not [name for name in await disk.listdir("t-0") if name.endswith(".deleted")]

    asyncio.run(scenario())


def test_a_partition_that_is_being_opened_is_closed_with_the_others() -> None:
    async def scenario() -> None:
        disk = WatchedDisk(MemoryDisk())
        directory = await open_directory(disk)
        gate = disk.gate("mkdir", "t-0")
        opening = asyncio.create_task(directory.partition("t", 0))
        await gate.reached.wait()
        closing = asyncio.create_task(directory.close())
        await settle()
        gate.open()
        await closing
        with pytest.raises(LogClosed):
            await (await opening).append_as_leader(batch(1), 0)
        with pytest.raises(LogClosed):
            await directory.partition("t", 1)

    asyncio.run(scenario())
