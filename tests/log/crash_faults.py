"""Disk errors at every operation of a workload.

The same workload is run again and again, each time with another operation failing: once, or with those that
follow until the step is over. A step that fails must say so by a StorageError naming the file; then what is
there is held against the stories as after a crash in the middle of that step. A log that refuses to go on is
sound again once the directory is reopened. At the end the node crashes, and nothing acknowledged is lost.
"""

from __future__ import annotations

from barnabas.core.errors import StorageError
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.random import SeededRandom
from tests.log.crash_checks import examine, find
from tests.log.crash_explorer import Recovery, Tally
from tests.log.crash_story import Crash, Step, Violation
from tests.log.workload import Workload, random_config
from tests.support.logs import drive


class FaultyDisk(MemoryDisk):
    """Numbers all operations, reading ones too, and fails those from `fails_at` on, `times` of them."""

    def __init__(self, fails_at: int | None = None, error_number: int = 0, times: int = 1) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.has_failed = False
        self.has_failed_to_sync = False
        self._fails_at = fails_at
        self._error_number = error_number
        self._times = self._times_asked = times

    def __str__(self) -> str:
        return f"FaultyDisk({self._fails_at}, {self._error_number}, {self._times_asked})"

    def begin(self, operation: str, path: str) -> None:
        number = len(self.seen)
        self.seen.append(operation)
        if self._fails_at is not None and self._fails_at <= number < self._fails_at + self._times:
            self.has_failed = True
            self.has_failed_to_sync |= operation in ("sync", "sync_dir")
            raise self.error(self._error_number, operation, path)
        super().begin(operation, path)

    def heal(self) -> None:
        self._times = 0
        super().heal()


class SmallDisk(MemoryDisk):
    """Has room for so much and no more; `heal` makes room."""

    def __init__(self, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self._capacity_asked = capacity_bytes

    def __str__(self) -> str:
        return f"SmallDisk({self._capacity_asked})"

    def heal(self) -> None:
        self.capacity_bytes = None
        super().heal()


class FaultRun:
    """A workload from a seed on a disk that will fail."""

    def __init__(self, seed: int, disk: MemoryDisk) -> None:
        random = SeededRandom(seed)
        self.config = random_config(random)
        self.disk = disk
        self.random = SeededRandom(seed + 1)
        self.workload = Workload(disk, self.config, random)
        self.errors: list[StorageError] = []

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            try:
                await self.workload.run(1)
            except StorageError as error:
                self._check_message(error)
                self.disk.heal()
                await self._pick_up()
            if isinstance(self.disk, FaultyDisk) and self.disk.has_failed:
                self.disk.heal()
        self._crash()

    def _check_message(self, error: StorageError) -> None:
        self.errors.append(error)
        if self.disk.describe("") not in str(error):
            raise Violation(f"an error that does not name the file: {error}")

    async def _pick_up(self) -> None:
        """Compare what is there with the stories, and go on; opened anew where that is needed."""
        workload = self.workload
        directory = workload.directory
        if directory is None:
            return
        logs = {key: directory.opened(*key) for key in workload.stories}
        is_failed = any(log is not None and log.failure is not None for log in logs.values())
        if is_failed and isinstance(self.disk, FaultyDisk) and self.disk.has_failed_to_sync:
            # nothing can be promised of such a file any more: the error says that the node must be restarted
            self.disk.crash_process()
            workload.directory = None
        elif is_failed or self.random.below(2):
            await directory.close()
            workload.directory = None
        await workload.run(0)
        for key, story in workload.stories.items():
            if story.step is not Step.NOTHING:
                story.failed()
                exists = key in workload.opened.partitions
                log = await workload.opened.partition(*key, topic_id=story.topic_id) if exists else None
                story.judge(Crash.PROCESS, await find(log) if log else None)
        for key, story in workload.stories.items():
            if story.exists:
                log = await workload.opened.partition(*key, topic_id=story.topic_id)
                await examine(log, story, self.random)

    def _crash(self) -> None:
        self.disk.heal()
        stories = self.workload.copy_stories()
        crash = Crash.POWER if self.random.below(2) else Crash.PROCESS
        recovery = Recovery(self.config, self.workload.clock, self.random, Tally())
        recovery.crash(self.disk, crash)
        recovery.run(self.disk, stories, crash)


def operations(seed: int, steps: int) -> list[str]:
    """What the workload does to the disk when nothing fails."""
    disk = FaultyDisk()
    errors = run_on(disk, seed, steps)
    assert not errors, errors
    return disk.seen


def run_on(disk: MemoryDisk, seed: int, steps: int) -> list[StorageError]:
    """The errors that came out of the workload."""
    run = FaultRun(seed, disk)
    try:
        drive(run.run(steps))
    except Exception as error:
        raise Violation(
            f"seed {seed}, on {disk}, during {run.workload.trace[-1:]}: {type(error).__name__}: {error}"
        ) from error
    return run.errors
