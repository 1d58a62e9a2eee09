"""A disk in memory: the same contract as the real one, deterministic, with crashes and faults on demand.

`memory_tree` holds the files and decides what a power loss leaves of them; `faults` holds the injected
errors; this file implements the disk interface on both. Nothing here ever suspends, so a workload on this
disk runs the same way every time.

- `crash_process`: everything written stays. `crash_power`: a random part of what was not synced is lost.
  After either, old handles and locks are dead (`DeadHandle`); after a power loss the remaining bytes are
  durable.
- Without a clock, its time stands still (`modified_ms`).
- `fork` is an independent copy, pending operations included: one run of a workload can be crashed at every
  operation, in many ways, without running it again.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable

from barnabas.core.clock import Clock, ManualClock
from barnabas.core.disk import (
    Buffer,
    HandleClosed,
    Space,
    directory_locked,
    storage_error,
    sync_failed_before,
)
from barnabas.core.errors import StorageError
from barnabas.core.faults import OPERATIONS, Faults, TornWrite
from barnabas.core.memory_tree import DirectoryNode, FileNode, Node, Place, Tree, Truncate, Write, split
from barnabas.core.random import Random, SeededRandom

UNLIMITED_BYTES = 1 << 62


class DeadHandle(HandleClosed):
    """A handle from before a crash was used after the crash."""


class MemoryFile:
    """A handle on a file of a MemoryDisk."""

    __slots__ = ("_closed", "_disk", "_life", "_node", "calls")

    def __init__(self, disk: MemoryDisk, node: FileNode) -> None:
        self._disk = disk
        self._life = disk.life
        self._node = node
        self._closed = False
        self.calls = 0  # in flight elsewhere; they succeed even if the file is closed or removed meanwhile

    @property
    def path(self) -> str:
        return self._node.path

    @property
    def size(self) -> int:
        return self._node.content.size

    @property
    def pins(self) -> int:
        return self._node.pins

    @property
    def is_gone(self) -> bool:
        return self._closed or (self._node.parent is None and not self._node.pins)

    async def append(self, data: Buffer) -> None:
        self._check("append")
        node, size = self._node, self._node.content.size
        try:
            self._write("append", size, data)
        except StorageError:
            if node.content.size > size:
                self._disk.change(node, Truncate(size))
            raise

    async def write_at(self, position: int, data: Buffer) -> None:
        self._check("write_at")
        self._write("write_at", position, data)

    async def read(self, position: int, size: int) -> bytes:
        self._check("read")
        return self._node.content.read(position, size)

    def reread(self, position: int, size: int) -> bytes:
        """The result of a read that began before the handle was closed or the file removed."""
        return self._node.content.read(position, size)

    async def truncate(self, size: int) -> None:
        self._check("truncate")
        self._disk.begin("truncate", self.path)
        self._disk.change(self._node, Truncate(size))
        if size == 0:
            self._node.unsyncable = False

    async def sync(self) -> None:
        self._check("sync")
        disk, node = self._disk, self._node
        if node.unsyncable:
            raise sync_failed_before(disk.describe(node.path))
        try:
            disk.begin("sync", node.path)
        except StorageError:
            node.unsyncable = True
            raise
        node.sync()

    async def rename(self, path: str) -> None:
        self._check("rename")
        await self._disk.rename(self.path, path)

    def pin(self) -> None:
        self._check("pin")
        self._node.pins += 1

    def unpin(self) -> None:
        if self._life == self._disk.life:
            self._node.pins -= 1

    def close(self) -> None:
        self._closed = True

    def _write(self, operation: str, position: int, data: Buffer) -> None:
        """Write as much as fits; raises if that is not everything."""
        disk, node = self._disk, self._node
        try:
            disk.begin(operation, self.path)
        except TornWrite as torn:
            disk.change(node, Write(position, bytes(data[: torn.count])))
            raise disk.faults.crash(torn.then) from None
        room = disk.room(node, position)
        disk.change(node, Write(position, bytes(data[:room])))
        if room < len(data):
            raise disk.error(errno.ENOSPC, operation, self.path)

    def _check(self, operation: str) -> None:
        disk, node = self._disk, self._node
        if self._life != disk.life:
            raise DeadHandle(f"{disk.describe(node.path)} was opened before a crash and used after it")
        is_closed = self._closed and not self.calls and not (operation == "read" and node.pins)
        if is_closed or disk.closed:
            raise HandleClosed(f"cannot {operation} {disk.describe(node.path)}: the handle is closed")
        if operation == "read":
            disk.begin("read", node.path)
        if node.parent is None and not node.pins and not self.calls:
            raise disk.error(errno.ENOENT, operation, node.name)


class MemoryDisk:
    """One log directory in memory."""

    def __init__(
        self,
        random: Random | None = None,
        *,
        clock: Clock | None = None,
        capacity_bytes: int | None = None,
        name: str = "memory:",
    ) -> None:
        self.name = name
        self.capacity_bytes = capacity_bytes
        self.faults = Faults()
        self.life = 0
        self.boot_id: str | None = "boot 0"
        self.closed = False
        self._random = random
        self._clock = clock or ManualClock()
        self._tree = Tree()
        self._locks: dict[str, object] = {}

    # The disk interface

    def describe(self, path: str) -> str:
        return f"{self.name}/{path}"

    async def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.begin("open", path)
        node = self._tree.find(path)
        if node is None and create:
            place = self._place(path, "create")
            self.begin("create", path)
            node = FileNode()
            node.modified_ms = self._clock.wall_ms()
            self._tree.change(node, None, place)
        if node is None:
            raise self.error(errno.ENOENT, "open", path)
        if isinstance(node, DirectoryNode):
            raise self.error(errno.EISDIR, "open", path)
        return MemoryFile(self, node)

    async def size_of(self, path: str) -> int | None:
        self.begin("open", path)
        node = self._tree.find(path)
        return node.content.size if isinstance(node, FileNode) else None

    async def modified_ms(self, path: str) -> int:
        self.begin("open", path)
        node = self._tree.find(path)
        if not isinstance(node, FileNode):
            raise self.error(errno.EISDIR if node else errno.ENOENT, "open", path)
        return node.modified_ms

    async def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.begin("set_modified", path)
        node = self._tree.find(path)
        if not isinstance(node, FileNode):
            raise self.error(errno.EISDIR if node else errno.ENOENT, "set_modified", path)
        node.modified_ms = modified_ms

    async def listdir(self, path: str) -> list[str]:
        self.begin("list", path)
        node = self._tree.find(path)
        if isinstance(node, FileNode):
            raise self.error(errno.ENOTDIR, "list", path)
        return sorted(node.entries) if node else []

    async def mkdir(self, path: str) -> None:
        self.check_alive(path)
        here = self._tree.root
        for name in split(path):
            node = here.entries.get(name)
            if node is None:
                self.begin("mkdir", f"{here.path}/{name}".lstrip("/"))
                node = DirectoryNode()
                self._tree.change(node, None, Place(here, name))
            if isinstance(node, FileNode):
                raise self.error(errno.ENOTDIR, "mkdir", path)
            here = node

    async def rename(self, path: str, new_path: str) -> None:
        self.begin("rename", path)
        node = self._tree.find(path)
        if node is None or node.parent is None:
            raise self.error(errno.ENOENT, "rename", path)
        source, target = Place(node.parent, node.name), self._place(new_path, "rename")
        if target.directory.is_within(node):
            raise self.error(errno.EINVAL, "rename", path)
        if self._refuses(node, target.directory.entries.get(target.name)):
            raise self.error(errno.ENOTEMPTY, "rename", path)
        if source != target:
            self._tree.change(node, source, target)

    async def remove(self, path: str) -> None:
        self.begin("remove", path)
        node = self._tree.find(path)
        if isinstance(node, DirectoryNode):
            raise self.error(errno.EISDIR, "remove", path)
        self._unlink(node)

    async def remove_tree(self, path: str) -> None:
        self.check_alive(path)
        node = self._tree.find(path)
        if isinstance(node, FileNode):
            raise self.error(errno.ENOTDIR, "remove", path)
        if node is None:
            return
        for name, entry in sorted(node.entries.items()):
            if isinstance(entry, DirectoryNode):
                await self.remove_tree(f"{path}/{name}")
            else:
                await self.remove(f"{path}/{name}")
        self.begin("remove", path)
        self._unlink(node)

    async def sync_dir(self, path: str) -> None:
        self.begin("sync_dir", path)
        node = self._tree.find(path)
        if not isinstance(node, DirectoryNode):
            raise self.error(errno.ENOTDIR if node else errno.ENOENT, "sync_dir", path)
        self._tree.sync(node)

    @property
    def can_sync_all(self) -> bool:
        return not any(file.unsyncable for file in self._tree.files())

    async def sync_all(self) -> None:
        if not self.can_sync_all:
            raise sync_failed_before(self.describe(""))
        try:
            self.begin("sync_all", "")
        except StorageError:
            for file in self._tree.files():
                file.unsyncable = bool(file.pending)
            raise
        self._tree.sync_all()

    async def space(self) -> Space:
        self.check_alive("")
        total_bytes = UNLIMITED_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return Space(total_bytes, max(0, total_bytes - self.used_bytes))

    async def lock(self, path: str) -> Callable[[], None]:
        self.begin("lock", path)
        if path in self._locks:
            raise directory_locked(self.describe(path))
        (await self.open(path, create=True)).close()
        mine, locks = object(), self._locks
        locks[path] = mine

        def release() -> None:
            if locks.get(path) is mine:
                del locks[path]

        return release

    def close(self) -> None:
        self.closed = True
        self._locks.clear()

    # Crashes

    def crash_process(self) -> None:
        """The node dies and the machine goes on: every byte written remains."""
        self._start_again()

    def crash_power(self, random: Random | None = None) -> None:
        """The machine dies: `random` decides which unsynced data is lost, torn or kept."""
        random = random or self._random or SeededRandom(0)
        self._tree.lose_power(random)
        self._start_again()
        self.boot_id = f"boot {self.life}"

    def fork(self) -> MemoryDisk:
        """A copy with the same files and pending operations, without handles, locks, rules or hook."""
        disk = MemoryDisk(self._random, clock=self._clock, capacity_bytes=self.capacity_bytes, name=self.name)
        disk._tree = copy.deepcopy(self._tree)
        disk.life, disk.boot_id = self.life, self.boot_id
        disk._let_go()
        return disk

    def _start_again(self) -> None:
        self.life += 1
        self.closed = False
        self._locks = {}
        self.faults.restart()
        self._let_go()

    def _let_go(self) -> None:
        for file in self._tree.files():
            file.pins = 0
            file.unsyncable = False

    # Faults

    @property
    def operations(self) -> int:
        """The number of mutating operations so far."""
        return self.faults.operations

    @property
    def before(self) -> Callable[[str, str], None] | None:
        """Called with (operation, path) before every mutating operation; see `faults`."""
        return self.faults.before

    @before.setter
    def before(self, hook: Callable[[str, str], None] | None) -> None:
        self.faults.before = hook

    def fail(
        self, operation: str, errno: int, *, path_glob: str = "*", after: int = 0, times: int | None = None
    ) -> None:
        """Let matching operations fail after `after` successes, `times` times or (None) always."""
        self.faults.fail(operation, errno, path_glob, after, times)

    def heal(self) -> None:
        """Remove every rule of `fail`."""
        self.faults.clear()

    def begin(self, operation: str, path: str) -> None:
        """Before an operation: count it, call the hook, raise the fault that is due."""
        self.check_alive(path)
        self.faults.check(operation, path, self.describe(path))

    def check_alive(self, path: str) -> None:
        if self.closed:
            raise HandleClosed(f"{self.describe(path)} is on a disk that is closed")
        self.faults.check_alive()

    def error(self, number: int, operation: str, path: str) -> StorageError:
        error = OSError(number, os.strerror(number))
        return storage_error(error, OPERATIONS.get(operation, operation), self.describe(path))

    def change(self, node: FileNode, operation: Write | Truncate) -> None:
        node.do(operation)
        node.modified_ms = self._clock.wall_ms()

    def room(self, node: FileNode, position: int) -> int:
        """The number of bytes that can be written from `position` of `node` before the disk is full."""
        if self.capacity_bytes is None:
            return UNLIMITED_BYTES
        in_place = max(0, len(node.content.written) - position)
        return max(0, self.capacity_bytes - self.used_bytes) + in_place

    @property
    def used_bytes(self) -> int:
        """The bytes that the files occupy."""
        return sum(len(file.content.written) for file in self._tree.files())

    def peek(self, path: str) -> dict[str, bytes]:
        """The contents of a directory's files, by name. Not an operation: no fault applies, the hook is not
        called."""
        return {
            name: file.content.read(0, file.content.size)
            for name, file in self.entries(path).items()
            if isinstance(file, FileNode)
        }

    def entries(self, path: str) -> dict[str, Node]:
        """The files and directories in a directory, in the order of their names. Not an operation."""
        node = self._tree.find(path)
        return dict(sorted(node.entries.items())) if isinstance(node, DirectoryNode) else {}

    # Names

    def _place(self, path: str, operation: str) -> Place:
        *above, name = split(path)
        directory = self._tree.find("/".join(above))
        if not isinstance(directory, DirectoryNode):
            raise self.error(errno.ENOTDIR if directory else errno.ENOENT, operation, path)
        return Place(directory, name)

    @staticmethod
    def _refuses(node: Node, there: Node | None) -> bool:
        """Whether `there` cannot be replaced by `node`: kinds must be equal, and a directory empty."""
        if there is None or there is node:
            return False
        if isinstance(there, DirectoryNode):
            return isinstance(node, FileNode) or bool(there.entries)
        return isinstance(node, DirectoryNode)

    def _unlink(self, node: Node | None) -> None:
        if node is not None and node.parent is not None:
            self._tree.change(node, Place(node.parent, node.name), None)
