"""Many logs closed together: one sync for all, and what becomes of them where it fails or the power does."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from barnabas.core.clock import SystemClock
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.os_disk import OsDisk
from barnabas.core.random import SeededRandom
from barnabas.core.workers import InlineWorkers
from barnabas.log import closing
from barnabas.log.directory import LogDirectory
from tests.support.log_fixtures import WatchedDisk
from tests.support.logs import batch, open_directory, read_all

COUNT = 5
# epoch 2 is that of the last two records, which may be lost
EPOCHS = ([(0, 0), (1, 2)], [(0, 0), (1, 2), (2, 3)])


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "TOGETHER_FROM", 2)


async def fill(directory: LogDirectory) -> None:
    """Three records in every partition, one of which has two segments."""
    for partition in range(COUNT):
        log = await directory.partition("t", partition)
        await log.append_as_leader(batch(2, producer_id=9, producer_epoch=0, base_sequence=0), 0)
        if partition == 1:
            await log.roll()
        await log.append_as_leader(batch(1), 1)


async def counts(directory: LogDirectory) -> list[int]:
    return [len(await read_all(await directory.partition("t", number))) for number in range(COUNT)]


def test_two_syncs_make_all_durable() -> None:
    async def scenario() -> None:
        memory = MemoryDisk()
        disk = WatchedDisk(memory)
        directory = await open_directory(disk)
        await fill(directory)
        disk.calls.clear()
        await directory.close()
        assert disk.calls["sync_all"] == 2
        # of the checkpoints and of the mark, and of nothing else
        assert max(disk.calls["sync"], disk.calls["sync_dir"]) <= COUNT
        memory.crash_power(SeededRandom(1))
        directory = await open_directory(memory)
        assert directory.was_clean
        assert await counts(directory) == [3] * COUNT
        log = await directory.partition("t", 1)
        assert (log.recovery_point, log.bases) == (3, [0, 2])
        assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 2)]
        assert len(log.producers) == 1

    asyncio.run(scenario())


def test_a_sync_that_fails_is_a_failed_flush_of_all(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        memory = MemoryDisk()
        directory = await open_directory(memory)
        await fill(directory)
        memory.fail("sync_all", errno.EIO)
        await directory.close()
        memory.heal()
        memory.crash_process()
        directory = await open_directory(memory)
        assert not directory.was_clean
        assert (await directory.partition("t", 0)).recovery_point == 0
        assert await counts(directory) == [3] * COUNT

    asyncio.run(scenario())
    assert "none of 5 partitions is closed cleanly: cannot sync all files in memory:" in caplog.text


def test_a_log_that_changes_meanwhile_is_closed_by_itself() -> None:
    async def scenario() -> None:
        memory = MemoryDisk()
        disk = WatchedDisk(memory)
        directory = await open_directory(disk)
        await fill(directory)
        logs = [await directory.partition("t", number) for number in range(COUNT)]
        gate = disk.gate("sync_all")
        stop = asyncio.create_task(directory.close())
        await gate.reached.wait()
        await logs[2].append_as_leader(batch(4), 1)
        gate.open()
        await stop
        memory.crash_power(SeededRandom(2))
        directory = await open_directory(memory)
        assert directory.was_clean
        assert await counts(directory) == [3, 3, 7, 3, 3]

    asyncio.run(scenario())


class Died(BaseException):
    """The end of the node."""


@pytest.mark.parametrize("seed", range(3))
def test_power_lost_on_the_way_leaves_what_was_flushed(seed: int) -> None:
    async def scenario(crash_at: int) -> bool:
        memory = MemoryDisk()
        directory = await open_directory(memory)
        await fill(directory)
        for number in range(COUNT):
            await (await directory.partition("t", number)).flush()
        await directory.checkpoint()
        for number in range(COUNT):
            await (await directory.partition("t", number)).append_as_leader(batch(2), 2)
        last = memory.operations + crash_at

        def die(operation: str, path: str) -> None:
            if memory.operations > last:
                raise Died

        memory.before = die
        ended = False
        try:
            await directory.close()
            ended = True
        except Died:
            pass
        memory.before = None
        memory.crash_power(SeededRandom(seed * 1000 + crash_at))
        directory = await open_directory(memory)
        is_clean = directory.was_clean  # the mark may be there before the stop has ended
        assert is_clean or not ended
        for found in await counts(directory):
            assert found == 5 if is_clean else found in (3, 5)
        for number in range(COUNT):
            log = await directory.partition("t", number)
            assert [tuple(entry) for entry in log.epochs.entries] in EPOCHS
        return ended

    points = 0
    while not asyncio.run(scenario(points)):
        points += 1
    assert points > 30


def test_syncfs_serves_a_directory_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        disk = OsDisk(tmp_path, InlineWorkers(), SystemClock())
        synced: list[Path] = []
        real = os.fdatasync
        monkeypatch.setattr(
            os, "fdatasync", lambda fd: (synced.append(Path(f"/proc/self/fd/{fd}").readlink()), real(fd))
        )
        directory = await open_directory(disk)
        await fill(directory)
        can = disk.can_sync_all
        synced.clear()
        await directory.close()
        if can:
            assert not [path for path in synced if path.suffix in (".log", ".index", ".snapshot")]
        directory = await open_directory(OsDisk(tmp_path, InlineWorkers(), SystemClock()))
        assert directory.was_clean
        assert await counts(directory) == [3] * COUNT
        await directory.close()

    asyncio.run(scenario())
