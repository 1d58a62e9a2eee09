"""Crashes at every operation of a workload.

The disk calls a hook before each operation that changes something. There the disk is forked, the fork is
crashed in each way, the directory is opened on it, and what is found is held against the stories; then the
workload goes on as if nothing had happened. So one run of a workload tries all crashes that it could have
met. A write can also be torn: the fork gets only the first bytes of what the operation was about to write.

Some of the recovered directories live on: they do more work, die at some operation, and are recovered once
more. In others the recovery itself is crashed at each of its operations.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from barnabas.core.clock import ManualClock
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import Random, SeededRandom
from barnabas.log.config import LogConfig
from tests.log.crash_checks import examine, find, go_on
from tests.log.crash_story import Crash, Story, Violation
from tests.log.workload import Key, Workload, random_config
from tests.support.logs import drive, open_directory

Stories = dict[Key, Story]

# one in so many: partitions take another append, directories live on, recoveries are crashed everywhere
GOES_ON, LIVES_ON, CRASHES_IN_RECOVERY = 3, 4, 40


class Died(BaseException):
    """The node ends here."""


@dataclass
class Tally:
    """How many crashes were tried."""

    by_operation: Counter[str] = field(default_factory=Counter)
    by_kind: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return sum(self.by_kind.values())

    def count(self, operation: str, crash: Crash) -> None:
        self.by_operation[operation] += 1
        self.by_kind[crash.value] += 1

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.by_kind.items()))
        operations = ", ".join(f"{count} {name}" for name, count in sorted(self.by_operation.items()))
        return f"{self.total} crash points ({kinds}; at {operations})"


class Explorer:
    """One workload from one seed, crashed everywhere."""

    def __init__(self, seed: int, tally: Tally) -> None:
        random = SeededRandom(seed)
        self.seed = seed
        self.tally = tally
        self.config = random_config(random)
        self.disk = MemoryDisk()
        self.workload = Workload(self.disk, self.config, random)
        self._number = 0
        # the disk before the last operation, if that was a write
        self._before_write: tuple[MemoryDisk, Stories, str] | None = None

    async def run(self, steps: int) -> None:
        self.disk.before = self._crash_here
        await self.workload.run(steps)
        self.disk.before = None

    def _crash_here(self, operation: str, path: str) -> None:
        """Every crash that could happen just before this operation, or in the middle of the last one."""
        self._number += 1
        random = SeededRandom(self.seed * 1_000_003 + self._number)
        if self._before_write is not None:
            fork, stories, written = self._before_write
            if tear(fork, self.disk, written, random):
                self._crash(fork, stories, Crash.PROCESS, "torn write", written, random)
        for crash in Crash:
            self._crash(self.disk.fork(), self.workload.copy_stories(), crash, operation, path, random)
        self._before_write = None
        if operation in ("append", "write_at"):
            self._before_write = self.disk.fork(), self.workload.copy_stories(), path

    def _crash(
        self, disk: MemoryDisk, stories: Stories, crash: Crash, operation: str, path: str, random: Random
    ) -> None:
        self.tally.count(operation, crash)
        recovery = Recovery(self.config, self.workload.clock, random, self.tally)
        try:
            recovery.crash(disk, crash)
            if random.below(CRASHES_IN_RECOVERY) == 0:
                recovery.crash_everywhere(disk, stories, crash)
                return
            recovery.run(disk, stories, crash)
            if random.below(LIVES_ON) == 0:
                recovery.live_on(disk, stories)
        except Exception as error:
            raise Violation(
                f"seed {self.seed}, {crash.value} crash at operation {self._number}, {operation} {path}, "
                f"during {self.workload.trace[-1:]}: {type(error).__name__}: {error}"
            ) from error


class Recovery:
    """What happens after a crash."""

    def __init__(self, config: LogConfig, clock: ManualClock, random: Random, tally: Tally) -> None:
        self._config = config
        self._clock = ManualClock(clock.wall_ms())
        self._random = random
        self._tally = tally

    def crash(self, disk: MemoryDisk, crash: Crash) -> None:
        if crash is Crash.POWER:
            disk.crash_power(self._random)
        else:
            disk.crash_process()

    def run(self, disk: MemoryDisk, stories: Stories, crash: Crash) -> None:
        """Open the directory and hold everything in it against the stories."""
        drive(self._run(disk, stories, crash))

    async def _run(self, disk: MemoryDisk, stories: Stories, crash: Crash) -> None:
        directory = await open_directory(disk, self._config, self._clock, self._random)
        for key, story in stories.items():
            if key not in directory.partitions:
                story.judge(crash, None)
                continue
            log = await directory.partition(*key, topic_id=story.topic_id)
            story.judge(crash, await find(log, 1 << self._random.below(16)))
            await examine(log, story, self._random)
            if self._random.below(GOES_ON) == 0:
                await go_on(log, story)

    def crash_everywhere(self, disk: MemoryDisk, stories: Stories, crash: Crash) -> None:
        """Recover, and crash the recovery before each of its operations, in both ways."""

        def crash_here(operation: str, path: str) -> None:
            for second in Crash:
                self._tally.count(f"recovery's {operation}", second)
                fork, copies = disk.fork(), {key: story.copy() for key, story in stories.items()}
                self.crash(fork, second)
                self.run(fork, copies, Crash.POWER if Crash.POWER in (crash, second) else Crash.PROCESS)

        disk.before = crash_here
        drive(self._open_all(disk, stories))
        disk.before = None

    async def _open_all(self, disk: MemoryDisk, stories: Stories) -> None:
        directory = await open_directory(disk, self._config, self._clock, self._random)
        for key in directory.partitions:
            await directory.partition(*key, topic_id=stories[key].topic_id)

    def live_on(self, disk: MemoryDisk, stories: Stories) -> None:
        """A second life: some more work, which ends at some operation, and another recovery."""
        crash = Crash.POWER if self._random.below(2) else Crash.PROCESS
        self._tally.count("an operation of a second life", crash)
        disk.crash_process()
        workload = Workload(disk, self._config, self._random, stories, self._clock)
        left = 1 + self._random.below(40)

        def die(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise Died

        disk.before = die
        with suppress(Died):
            drive(workload.run(6))
        disk.before = None
        stories = workload.copy_stories()
        self.crash(disk, crash)
        self.run(disk, stories, crash)


def tear(torn: MemoryDisk, after: MemoryDisk, path: str, random: Random) -> bool:
    """Bring the first part of what `after` has more in a file to `torn`; False if there is nothing more."""
    old, new = drive(_contents(torn, path)), drive(_contents(after, path))
    if old is None or new is None or len(new) < len(old):
        return False
    differs = (at for at, byte in enumerate(new) if at >= len(old) or old[at] != byte)
    start = next(differs, None)
    if start is None:
        return False
    count = 1 + random.below(len(new) - start)
    drive(_write(torn, path, start, new[start : start + count]))
    return True


async def _contents(disk: MemoryDisk, path: str) -> bytes | None:
    size = await disk.size_of(path)
    return None if size is None else await (await disk.open(path)).read(0, size)


async def _write(disk: MemoryDisk, path: str, position: int, data: bytes) -> None:
    await (await disk.open(path)).write_at(position, data)
