"""The disk of the operating system: a log directory, its names and its lock.

`os_file` reads and writes, `open_files` has the open files, `descriptors` pools their file descriptors. Names
are changed on the loop, which takes microseconds; slow operations go to a worker: syncing a directory,
freeing a large file, removing a tree.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from barnabas.core.clock import Clock
from barnabas.core.descriptors import OPEN_FLAGS, OsNode, default_max_open
from barnabas.core.disk import HandleClosed, Space, storage_errors, sync_failed_before
from barnabas.core.errors import StorageError
from barnabas.core.open_files import OpenFiles
from barnabas.core.os_file import INLINE_FREE_BYTES, FileIo, OsFile
from barnabas.core.os_lock import lock_file
from barnabas.core.workers import Workers

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class OsDisk:
    """One log directory of the file system."""

    def __init__(
        self, root: str | Path, workers: Workers, clock: Clock, max_open_files: int | None = None
    ) -> None:
        self._files = OpenFiles(root, max_open_files or default_max_open())
        self._io = FileIo(self._files, workers, clock, self.rename)
        self._workers = workers
        self._locks: list[Callable[[], None]] = []
        self._root_fd = -1  # open from the lock on: syncfs reports the writes that failed since then
        self._all_failed = False

    def describe(self, path: str) -> str:
        return self._files.describe(path)

    async def open(self, path: str, *, create: bool = False) -> OsFile:
        self._check_open(path)
        node = self._files.get(path)
        if node is None:
            node = self._find(path, create)
            self._files.add(node)
        node.handles += 1
        return OsFile(self._io, node)

    async def size_of(self, path: str) -> int | None:
        self._check_open(path)
        with storage_errors("open", self.describe(path)):
            try:
                status = os.stat(self.describe(path))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    async def modified_ms(self, path: str) -> int:
        self._check_open(path)
        with storage_errors("open", self.describe(path)):
            return os.stat(self.describe(path)).st_mtime_ns // 1_000_000

    async def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._check_open(path)
        with storage_errors("set the time of", self.describe(path)):
            os.utime(self.describe(path), ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    async def listdir(self, path: str) -> list[str]:
        self._check_open(path)
        with storage_errors("list", self.describe(path)):
            try:
                return sorted(os.listdir(self.describe(path)))
            except FileNotFoundError:
                return []

    async def mkdir(self, path: str) -> None:
        self._check_open(path)
        with storage_errors("make the directory", self.describe(path)):
            os.makedirs(self.describe(path), exist_ok=True)

    async def rename(self, path: str, new_path: str) -> None:
        self._check_open(path)
        if path == new_path:
            return
        replaced = self._files.at(new_path)
        self._files.keep_pinned(replaced)
        with storage_errors("rename", self.describe(path)):
            os.rename(self.describe(path), self.describe(new_path))
        for node in replaced:
            self._files.unlink(node)
        for node in self._files.at(path):
            self._files.move(node, new_path + node.path[len(path) :])

    async def remove(self, path: str) -> None:
        self._check_open(path)
        nodes = self._files.at(path)
        self._files.keep_pinned(nodes)
        size = nodes[0].size if nodes else await self.size_of(path) or 0
        try:
            with storage_errors("remove", self.describe(path)):
                if size > INLINE_FREE_BYTES:
                    await self._workers.run(_remove_file, self.describe(path))
                else:
                    _remove_file(self.describe(path))
        finally:
            self._unlink_missing(nodes)

    async def remove_tree(self, path: str) -> None:
        self._check_open(path)
        nodes = self._files.at(path)
        self._files.keep_pinned(nodes)
        try:
            with storage_errors("remove", self.describe(path)):
                await self._workers.run(_remove_tree, self.describe(path))
        finally:
            self._unlink_missing(nodes)

    async def sync_dir(self, path: str) -> None:
        self._check_open(path)
        with storage_errors("sync the directory", self.describe(path)):
            await self._workers.run(_sync_directory, self.describe(path))

    @property
    def can_sync_all(self) -> bool:
        if self._root_fd < 0 or self._all_failed or self._files.has_unsyncable:
            return False
        from barnabas.core.os_sync import can_sync_file_system

        return can_sync_file_system(self._root_fd)

    async def sync_all(self) -> None:
        from barnabas.core.os_sync import sync_file_system

        self._check_open("")
        if not self.can_sync_all:
            raise sync_failed_before(self.describe(""))
        try:
            with storage_errors("sync all files in", self.describe("")):
                await self._workers.run(sync_file_system, self._root_fd)
        except StorageError:
            self._all_failed = True
            raise

    async def space(self) -> Space:
        self._check_open("")
        with storage_errors("look at", self.describe("")):
            found = await self._workers.run(os.statvfs, self.describe(""))
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    @property
    def boot_id(self) -> str | None:
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                return file.read().strip() or None
        except OSError:  # another system than Linux
            return None

    async def lock(self, path: str) -> Callable[[], None]:
        self._check_open(path)
        unlock = lock_file(self.describe(path))
        if self._root_fd < 0:
            with storage_errors("open", self.describe("")):
                self._root_fd = os.open(self.describe(""), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

        def release() -> None:
            self._close_root()
            unlock()

        self._locks.append(release)
        return release

    def close(self) -> None:
        self._files.close()
        for release in self._locks:
            release()
        self._locks.clear()

    def _close_root(self) -> None:
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1

    @property
    def descriptors(self) -> int:
        """The number of file descriptors open for its files."""
        return self._files.descriptors

    @property
    def stalled(self) -> bool:
        """Whether writes go to workers because they had to wait for the medium."""
        return self._io.stalled

    def _find(self, path: str, create: bool) -> OsNode:
        node = OsNode(path, 0)
        where = self.describe(path)
        with storage_errors("open", where):
            try:
                status = os.stat(where)
            except FileNotFoundError:
                if not create:
                    raise
                self._files.open_descriptor(node, OPEN_FLAGS | os.O_CREAT)
                return node
            if not stat.S_ISREG(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "not a file")
        node.size = status.st_size
        return node

    def _unlink_missing(self, nodes: list[OsNode]) -> None:
        """Unlink the nodes of removed files, even if the removal failed half-way or was cancelled."""
        for node in nodes:
            if not os.path.lexists(self.describe(node.path)):
                self._files.unlink(node)

    def _check_open(self, path: str) -> None:
        if self._files.closed:
            raise HandleClosed(f"{self.describe(path)} is on a disk that is closed")


def _sync_directory(full_path: str) -> None:
    fd = os.open(full_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove_file(full_path: str) -> None:
    try:
        os.unlink(full_path)
    except FileNotFoundError:
        return


def _remove_tree(full_path: str) -> None:
    if os.path.lexists(full_path):
        shutil.rmtree(full_path)
