"""The disk of a simulated machine, as one process sees it: the one in memory, where everything takes time.

A call takes effect at its end, so that others come in between; a read gives the bytes as they were when it
began or when it ended, and often takes no time at all. When the process dies, what was under way has
happened, or has not, or in part; when the power fails, what was not synced may be lost besides. The files
belong to the machine (`Drive`); a process has its own door to them (`SimDisk`), which its death shuts.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from fnmatch import fnmatchcase
from typing import Any, TypeVar
from zlib import crc32

from barnabas.core.disk import Buffer, HandleClosed, Space
from barnabas.core.errors import BarnabasError
from barnabas.core.faults import TornWrite
from barnabas.core.memory_disk import MemoryDisk, MemoryFile
from barnabas.core.random import SeededRandom
from barnabas.log.names import LOG
from barnabas.sim.chance import between, happens, log_between
from barnabas.sim.clock import SimClock
from barnabas.sim.trace import AddLine
from barnabas.sim.under_way import Call, NodeCrash, UnderWay

T = TypeVar("T")

# how long calls take, in seconds: the least and the most
APPEND_S = (20e-6, 200e-6)
READ_S = (5e-6, 60e-6)
SYNC_S = (0.5e-3, 10e-3)
NAMES_S = (10e-6, 100e-6)
SLOW_S = (0.1, 5.0)
TORN, TORN_BYTES = 0.7, 16384
CACHED = 0.7


class Drive:
    """The medium of a machine. `slow`: the part of all calls that takes very long, while it is set."""

    def __init__(self, clock: SimClock, random: SeededRandom, trace: AddLine) -> None:
        self.files = MemoryDisk(clock=clock)
        self.files.before = self._before
        self.slow = 0.0
        self.has_failed = False  # it was made to fail, or was full, at least once
        self._random = random
        self._trace = trace
        self._crash_in: int | None = None
        self._crash_where = "*"
        self._on_crash: Callable[[], None] | None = None
        self.on_cut: Callable[[], None] | None = None  # called when a segment is about to be cut

    # Time

    def seconds(self, least: float, most: float) -> float:
        """How long a call takes."""
        if self.slow and happens(self._random, self.slow):
            return log_between(self._random, *SLOW_S)
        return between(self._random, least, most)

    def is_cached(self) -> bool:
        """Whether a read finds all it wants in the page cache, and so takes no time."""
        return happens(self._random, CACHED) and not self.slow

    def reads_late(self) -> bool:
        return bool(self._random.below(2))

    def trace(self, what: str) -> None:
        self._trace("disk", what)

    # Faults

    def leave_free(self, free_bytes: int | None) -> None:
        """Let it be full but for so many bytes, or as large as ever."""
        if free_bytes is None:
            self.files.capacity_bytes = None
        else:
            self.has_failed = True
            self.files.capacity_bytes = self.files.used_bytes + free_bytes

    def fail(self, operation: str, error: int, path_glob: str, after: int, times: int) -> None:
        """Let calls fail."""
        self.has_failed = True
        self.files.fail(operation, error, path_glob=path_glob, after=after, times=times)

    def heal(self) -> None:
        """It is as good as new, and nothing more is planned."""
        self.files.heal()
        self.leave_free(None)
        self.slow = 0.0
        self._crash_in = None

    # Crashes

    def crash_at(self, mutations: int, on_crash: Callable[[], None], path_glob: str = "*") -> None:
        """Crash in the middle of the so-manieth change of such a file or name from now on; one that waits for
        certain files goes on waiting."""
        if self._crash_in is not None and self._crash_where != "*":
            return
        self._crash_in = mutations
        self._crash_where = path_glob
        self._on_crash = on_crash

    def crash(self, calls: list[Call], *, power: bool) -> None:
        """The process, or the machine, is down; those calls were under way."""
        self._crash_in = None
        self.files.before = None
        self.files.faults.restart()
        for call in calls:
            self._leave(call)
        if power:
            self.files.crash_power(self._random)
        else:
            self.files.crash_process()
        self.files.before = self._before

    def _leave(self, call: Call) -> None:
        """A call whose end nobody saw: it has not begun, is done, or is torn."""
        fate = self._random.below(3)
        try:
            if fate == 2 and call.tear is not None:
                call.tear(self._random.uniform())
            elif fate:
                call.finish()
        except (BarnabasError, HandleClosed) as error:
            self.trace(f"under way at the crash: {error}")

    def _before(self, operation: str, path: str) -> None:
        if operation == "truncate" and self.on_cut is not None and path.endswith(LOG):
            self.on_cut()
        is_write = operation in ("append", "write_at")
        if not is_write:
            self.trace(f"{operation} {path}")
        if self._crash_in is None or not fnmatchcase(path, self._crash_where):
            return
        self._crash_in -= 1
        if self._crash_in > 0:
            return
        self._crash_in = None
        assert self._on_crash is not None
        self._on_crash()
        self.trace(f"crash in {operation} {path}")
        if is_write and happens(self._random, TORN):
            raise TornWrite(int(log_between(self._random, 1, TORN_BYTES)), NodeCrash())
        raise NodeCrash


class SimFile:
    """A handle of one process on a file. As with descriptors, what is under way outlives `close`."""

    __slots__ = ("_disk", "_file", "_is_closed")

    def __init__(self, disk: SimDisk, file: MemoryFile) -> None:
        self._disk = disk
        self._file = file
        self._is_closed = False

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def size(self) -> int:
        return self._file.size

    @property
    def pins(self) -> int:
        return self._file.pins

    @property
    def is_gone(self) -> bool:
        return self._file.is_gone

    async def append(self, data: Buffer) -> None:
        def finish(part: float = 1.0) -> None:
            head = _head(data, part)
            self._disk.drive.trace(f"append {self.path} {len(head)} {crc32(head):08x}")
            at_once(self._file.append(head))

        await self._call("append", APPEND_S, finish, finish)

    async def write_at(self, position: int, data: Buffer) -> None:
        def finish(part: float = 1.0) -> None:
            head = _head(data, part)
            self._disk.drive.trace(f"write {self.path} {position} {len(head)} {crc32(head):08x}")
            at_once(self._file.write_at(position, head))

        await self._call("write_at", APPEND_S, finish, finish)

    async def read(self, position: int, size: int) -> bytes:
        drive = self._disk.drive
        self._disk.check()
        early = at_once(self._file.read(position, size))
        if drive.is_cached():
            return early
        is_late = drive.reads_late()
        return await self._disk.call(READ_S, lambda: self._file.reread(position, size) if is_late else early)

    async def truncate(self, size: int) -> None:
        await self._call("truncate", NAMES_S, lambda: at_once(self._file.truncate(size)))

    async def sync(self) -> None:
        await self._call("sync", SYNC_S, lambda: at_once(self._file.sync()))

    async def rename(self, path: str) -> None:
        await self._call("rename", NAMES_S, lambda: at_once(self._file.rename(path)))

    def pin(self) -> None:
        self._file.pin()

    def unpin(self) -> None:
        self._file.unpin()

    def close(self) -> None:
        self._is_closed = True
        self._file.close()

    async def _call(
        self,
        operation: str,
        seconds: tuple[float, float],
        finish: Callable[[], None],
        tear: Callable[[float], object] | None = None,
    ) -> None:
        if self._is_closed:
            raise HandleClosed(f"cannot {operation} {self._disk.describe(self.path)}: the handle is closed")
        self._file.calls += 1
        try:
            await self._disk.call(seconds, finish, tear)
        finally:
            self._file.calls -= 1


class SimDisk:
    """The disk seam of one process."""

    def __init__(self, drive: Drive, under_way: UnderWay) -> None:
        self.drive = drive
        self._files = drive.files
        self._under_way = under_way

    async def call(
        self,
        seconds: tuple[float, float],
        finish: Callable[[], T],
        tear: Callable[[float], object] | None = None,
    ) -> T:
        return await self._under_way.call(self.drive.seconds(*seconds), finish, tear)

    def check(self) -> None:
        """Nobody reads for a process that is dead."""
        self._under_way.check()

    def describe(self, path: str) -> str:
        return self._files.describe(path)

    async def open(self, path: str, *, create: bool = False) -> SimFile:
        file = await self.call(NAMES_S, lambda: at_once(self._files.open(path, create=create)))
        return SimFile(self, file)

    async def size_of(self, path: str) -> int | None:
        return await self.call(READ_S, lambda: at_once(self._files.size_of(path)))

    async def modified_ms(self, path: str) -> int:
        return await self.call(READ_S, lambda: at_once(self._files.modified_ms(path)))

    async def set_modified_ms(self, path: str, modified_ms: int) -> None:
        await self.call(NAMES_S, lambda: at_once(self._files.set_modified_ms(path, modified_ms)))

    async def listdir(self, path: str) -> list[str]:
        return await self.call(READ_S, lambda: at_once(self._files.listdir(path)))

    async def mkdir(self, path: str) -> None:
        await self.call(NAMES_S, lambda: at_once(self._files.mkdir(path)))

    async def rename(self, path: str, new_path: str) -> None:
        await self.call(NAMES_S, lambda: at_once(self._files.rename(path, new_path)))

    async def remove(self, path: str) -> None:
        await self.call(NAMES_S, lambda: at_once(self._files.remove(path)))

    async def remove_tree(self, path: str) -> None:
        await self.call(NAMES_S, lambda: at_once(self._files.remove_tree(path)))

    async def sync_dir(self, path: str) -> None:
        await self.call(SYNC_S, lambda: at_once(self._files.sync_dir(path)))

    @property
    def can_sync_all(self) -> bool:
        return self._files.can_sync_all

    async def sync_all(self) -> None:
        await self.call(SYNC_S, lambda: at_once(self._files.sync_all()))

    async def space(self) -> Space:
        return await self.call(READ_S, lambda: at_once(self._files.space()))

    @property
    def boot_id(self) -> str | None:
        return self._files.boot_id

    async def lock(self, path: str) -> Callable[[], None]:
        return await self.call(NAMES_S, lambda: at_once(self._files.lock(path)))

    def close(self) -> None:
        self._under_way.check()
        self._files.close()


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives that never waits, as those of the disk in memory."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("the disk in memory has waited for something")


def _head(data: Buffer, part: float) -> Buffer:
    return data if part >= 1 else memoryview(data)[: int(len(data) * part)]
