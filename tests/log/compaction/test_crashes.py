"""A crash of each kind before every operation of a compaction, and in the middle of every write.

The disk calls a hook before each operation that changes something. There it is forked, the fork is crashed,
and the directory opened on it: what is there holds against the model, and a second compaction completes.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest

from barnabas.core.errors import StorageError
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from tests.log.compaction.life import Life, Story
from tests.log.crash_explorer import tear
from tests.support.logs import drive

# before a directory is synced, most depends on what becomes of the names
POWER_LOSSES, POWER_LOSSES_OF_NAMES = 1, 5
# one in so many recoveries is itself crashed everywhere
RECOVERIES_CRASHED = 100


class Explorer:
    """Crashes forks of a life at every operation that the original comes to."""

    def __init__(self, life: Life, seed: int) -> None:
        self._life = life
        self._random = SeededRandom(seed)
        self._before_write: tuple[MemoryDisk, str] | None = None
        self.count = 0

    def crash_here(self, operation: str, path: str) -> None:
        if self._before_write is not None:
            torn, written = self._before_write
            if tear(torn, self._life.disk, written, self._random):
                self._crash(torn, MemoryDisk.crash_process, f"torn write to {written}")
        self._before_write = None
        self._crash(self._life.disk.fork(), MemoryDisk.crash_process, f"process, {operation} {path}")
        for _ in range(POWER_LOSSES_OF_NAMES if operation == "sync_dir" else POWER_LOSSES):
            self._crash(self._life.disk.fork(), self._lose_power, f"power, {operation} {path}")
        if operation in ("append", "write_at"):
            self._before_write = self._life.disk.fork(), path

    def _lose_power(self, disk: MemoryDisk) -> None:
        disk.crash_power(self._random)

    def _crash(self, disk: MemoryDisk, crash: Callable[[MemoryDisk], None], what: str) -> None:
        self.count += 1
        crash(disk)
        try:
            if self._random.below(RECOVERIES_CRASHED) == 0:
                self._crash_recovery(disk)
            drive(self._recover(disk))
        except Exception as error:
            raise AssertionError(f"crash {self.count} ({what}): {type(error).__name__}: {error}") from error

    def _crash_recovery(self, disk: MemoryDisk) -> None:
        """Open a fork of the disk, and crash that, in each way, before every operation."""
        opened = disk.fork()

        def crash_again(operation: str, path: str) -> None:
            for crash in (MemoryDisk.crash_process, self._lose_power):
                fork = opened.fork()
                crash(fork)
                self.count += 1
                drive(self._recover(fork))

        opened.before = crash_again
        drive(self._life.after_crash(opened).open())
        opened.before = None

    async def _recover(self, disk: MemoryDisk) -> None:
        durable = self._life.log.recovery_point
        life = self._life.after_crash(disk)
        log = await life.open()
        assert log.end_offset >= durable, f"the log ends at {log.end_offset}, {durable} was durable"
        await life.check(is_thorough=False)
        await life.check_names()
        if await life.clean() is not None:
            await life.check(is_clean_below=log.cleaned_offset or 0, is_thorough=False)


@pytest.mark.parametrize(("seed", "slots", "buffer_bytes"), [(1, 1000, 4096), (3, 6, 200)])
def test_crashes_at_every_operation(
    seed: int, slots: int, buffer_bytes: int, record_property: Callable[[str, object], None]
) -> None:
    async def scenario() -> None:
        random = SeededRandom(seed)
        life = Life()
        story = Story(life, random)
        await life.open()
        await story.write(4)
        await story.settle()
        await life.clean()
        life.clock.advance(1.5)  # tombstones and markers of the first round are due
        await story.write(4)
        await story.settle()
        await life.log.flush()
        await life.put([(b"k1", b"not durable")])
        explorer = Explorer(life, seed)
        life.disk.before = explorer.crash_here
        assert await life.clean(slots, buffer_bytes) is not None
        life.disk.before = None
        await life.check(is_clean_below=life.log.cleaned_offset or 0)
        record_property("crash points", explorer.count)

    asyncio.run(scenario())


@pytest.mark.parametrize("keep", [0, pytest.param(3, marks=pytest.mark.long), 9])
def test_crashes_where_little_is_kept_of_a_group(keep: int) -> None:
    """Small segments, of which a few groups are made: at most one has a record that stays."""

    async def scenario() -> None:
        life = Life()
        await life.open()
        for number in range(6):
            key = b"only" if number == keep else b"k%d" % (number % 2)
            await life.put([(key, None if number % 3 else b"v")], 10 if number % 3 == 0 else -1)
            if number % 3 == 2:
                await life.end(10, commit=number > 4)
            await life.log.roll()
        await life.put([(b"k0", b"new"), (b"k1", b"new")])
        await life.log.roll()
        await life.log.flush()
        explorer = Explorer(life, keep)
        life.disk.before = explorer.crash_here
        cleaned = await life.clean()
        life.disk.before = None
        assert cleaned is not None
        assert cleaned.stats.segments_before > cleaned.stats.segments_after > 1
        assert explorer.count > 100
        await life.check(is_clean_below=life.log.cleaned_offset or 0)

    asyncio.run(scenario())


def test_crashes_while_a_swap_is_withdrawn() -> None:
    """The new files cannot be made durable under the names that announce them, so these are taken back. The
    newest record is superseded by an older one: the time index of the one segment would not do for the other.
    """

    async def scenario() -> None:
        life = Life()
        await life.open()
        await life.put([(b"a", b"1")])
        life.clock.advance(100)
        await life.put([(b"a", b"2")])
        life.clock.jump_ms(-50_000)
        await life.put([(b"a", b"3")])
        await life.log.roll()
        await life.log.flush()
        explorer = Explorer(life, 1)
        # the first sync is of the finished files, the second of their new names
        life.disk.fail("sync_dir", errno.EIO, path_glob="t-0", after=1, times=1)
        life.disk.before = explorer.crash_here
        with pytest.raises(StorageError):
            await life.clean()
        life.disk.before = None
        assert life.log.failure is None
        await life.check()
        await life.check_names()

    asyncio.run(scenario())
