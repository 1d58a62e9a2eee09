"""Housekeeping under a clock that the test moves."""

from __future__ import annotations

import asyncio
import errno
import gc
import struct
from collections.abc import Awaitable, Callable

import pytest

from barnabas.core.clock import ManualClock
from barnabas.core.disk import DiskFailed, DiskFull
from barnabas.core.errors import StorageError
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log import housekeeping
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.housekeeping import Intervals, keep_house
from barnabas.log.partition import PartitionLog
from tests.support.logs import START_MS, batch, open_directory

EVERY = Intervals(flush_ms=1000, checkpoint_ms=5000, retention_ms=10_000)


async def pass_time(clock: ManualClock, seconds: int) -> None:
    """Second by second, letting the housekeeping run to its next sleep each time."""
    await settle()
    for _ in range(seconds):
        clock.advance(1)
        await settle()


async def settle() -> None:
    """Let every task run until it waits for the clock: on a disk in memory nothing else is waited for."""
    for _ in range(50):
        await asyncio.sleep(0)


def run(test: Callable[[MemoryDisk, ManualClock], Awaitable[None]]) -> None:
    asyncio.run(test(MemoryDisk(), ManualClock(START_MS)))  # type: ignore[arg-type]


def test_flush_ms_checkpoints_and_retention_come_by_themselves() -> None:
    async def test(disk: MemoryDisk, clock: ManualClock) -> None:
        config = LogConfig(flush_ms=3000, retention_ms=20_000, segment_ms=1000, file_delete_delay_ms=0)
        directory = await open_directory(disk, config, clock)
        log = await directory.partition("t", 0)
        house = asyncio.create_task(keep_house(directory, clock, EVERY))
        await settle()
        await log.append_as_leader(batch(3), 0)
        await pass_time(clock, 2)
        assert log.recovery_point == 0
        await pass_time(clock, 1)
        assert log.recovery_point == 3
        await pass_time(clock, 2)
        file = await disk.open("recovery-point-offset-checkpoint")
        assert (await file.read(0, 100)).decode().split() == ["0", "1", "t", "0", "3"]
        log.advance_high_watermark(3)
        await pass_time(clock, 30)
        assert log.start_offset == 3
        assert "00000000000000000000.log" not in await disk.listdir("t-0")
        house.cancel()
        with pytest.raises(asyncio.CancelledError):
            await house

    run(test)


def test_a_rolled_segment_is_flushed_soon() -> None:
    async def test(disk: MemoryDisk, clock: ManualClock) -> None:
        directory = await open_directory(disk, LogConfig(), clock)
        log = await directory.partition("t", 0)
        house = asyncio.create_task(keep_house(directory, clock, EVERY))
        await settle()
        await log.append_as_leader(batch(3), 0)
        await log.roll()
        await pass_time(clock, 1)
        assert log.recovery_point == 3
        house.cancel()
        with pytest.raises(asyncio.CancelledError):
            await house

    run(test)


def test_index_files_exist_at_once_and_have_their_entries_within_a_second() -> None:
    async def test(disk: MemoryDisk, clock: ManualClock) -> None:
        config = LogConfig(index_interval_bytes=0, segment_index_bytes=48)
        directory = await open_directory(disk, config, clock)
        log = await directory.partition("t", 0)
        paths = [f"t-0/00000000000000000000{suffix}" for suffix in (".index", ".timeindex")]
        assert [await disk.size_of(path) for path in paths] == [0, 0]
        house = asyncio.create_task(keep_house(directory, clock, EVERY))
        await settle()
        for number in range(3):
            await log.append_as_leader(batch(2, timestamp=START_MS + number), 0)
        assert [await disk.size_of(path) for path in paths] == [0, 0]
        await pass_time(clock, 1)
        offsets, times = [await (await disk.open(path)).read(0, 100) for path in paths]
        size = log.size_bytes // 3
        # the first batch has no entry; the files are preallocated to 48 bytes
        assert offsets == struct.pack(">iiii", 3, size, 5, 2 * size) + bytes(32)
        assert times == struct.pack(">qiqi", START_MS + 2, 3, START_MS + 3, 5) + bytes(24)
        assert not log.active.has_waiting_entries
        house.cancel()
        with pytest.raises(asyncio.CancelledError):
            await house

    run(test)


def test_index_entries_that_cannot_be_written_wait_in_memory() -> None:
    async def test(disk: MemoryDisk, clock: ManualClock) -> None:
        directory = await open_directory(disk, LogConfig(index_interval_bytes=0), clock)
        troubles: list[StorageError] = []
        directory.on_trouble = troubles.append
        log = await directory.partition("t", 0)
        for number in range(3):
            await log.append_as_leader(batch(2, timestamp=START_MS + number), 0)
        disk.fail("write_at", errno.ENOSPC, path_glob="*index")
        await housekeeping.write_index_entries(directory)
        assert [type(error) for error in troubles] == [DiskFull]
        assert log.active.has_waiting_entries
        assert log.failure is None
        disk.heal()
        await housekeeping.write_index_entries(directory)
        assert len(troubles) == 1
        assert not log.active.has_waiting_entries

    run(test)


def test_after_a_crash_untouched_partitions_are_recovered_so_that_the_next_stop_is_clean() -> None:
    async def test(disk: MemoryDisk, clock: ManualClock) -> None:
        directory = await open_directory(disk, LogConfig(), clock)
        for partition in range(3):
            await (await directory.partition("t", partition)).append_as_leader(batch(3), 0)
        disk.crash_process()
        directory = await open_directory(disk, LogConfig(), clock)
        await directory.close()
        directory = await open_directory(disk, LogConfig(), clock)
        assert not directory.was_clean
        house = asyncio.create_task(keep_house(directory, clock, EVERY))
        await pass_time(clock, 1)
        house.cancel()
        with pytest.raises(asyncio.CancelledError):
            await house
        await directory.close()
        assert (await open_directory(disk, LogConfig(), clock)).was_clean

    run(test)


def test_who_stops_the_housekeeping_waits_for_what_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(disk: MemoryDisk, clock: ManualClock) -> None:
        directory = await open_directory(disk, LogConfig(), clock)
        begun, may_end, ended = asyncio.Event(), asyncio.Event(), []

        async def retention(_: LogDirectory) -> int:
            begun.set()
            await may_end.wait()
            ended.append(True)
            return 0

        monkeypatch.setattr(housekeeping, "apply_retention", retention)
        house = asyncio.create_task(keep_house(directory, clock, EVERY))
        await pass_time(clock, 10)
        assert begun.is_set()
        house.cancel()
        await settle()
        assert not house.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await house
        assert ended == [True]

    run(test)


def test_what_has_begun_is_carried_through_when_housekeeping_is_cancelled() -> None:
    async def scenario() -> None:
        begun, may_end, ended = asyncio.Event(), asyncio.Event(), []

        async def action() -> None:
            begun.set()
            await may_end.wait()
            ended.append(True)

        task = asyncio.ensure_future(housekeeping.carried_through(action))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]

    asyncio.run(scenario())


@pytest.mark.parametrize("cancels", [1, 2])
def test_what_fails_while_it_is_carried_through_is_told_of_once(
    cancels: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def action() -> None:
            begun.set()
            await may_end.wait()
            raise DiskFailed("the disk is gone")

        task = asyncio.ensure_future(housekeeping.carried_through(action))
        await begun.wait()
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0)
        may_end.set()
        await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    gc.collect()
    assert [record.name for record in caplog.records] == ["barnabas.log"]


def test_log_that_is_deleted_during_a_round_is_not_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Seed 35 of the kind replication."""

    async def test(disk: MemoryDisk, clock: ManualClock) -> None:
        directory = await open_directory(disk, LogConfig(flush_ms=0), clock)
        for partition in (0, 1):
            await (await directory.partition("t", partition)).append_as_leader(batch(3), 0)
        honest = PartitionLog.flush

        async def flush(log: PartitionLog, up_to: int | None = None) -> None:
            if log.path == "t-0":
                await directory.delete_partition("t", 1)
            await honest(log, up_to)

        monkeypatch.setattr(PartitionLog, "flush", flush)
        await housekeeping.flush_due(directory)
        await directory.close()

    run(test)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
