"""Reading and writing files of the operating system, on the loop or in a worker.

Appends and small writes run on the loop: the page cache answers in microseconds, and a thread costs tens of
them. Operations that may wait for the medium go to a worker: syncs, large truncations, and reads of pages
that are not cached. RWF_NOWAIT tells whether a page is cached; where the file system does not support that
flag, the size of the read decides.

Appends that take longer than STALL_SECONDS mean that the kernel makes writers wait for dirty pages to be
written out. From then on this disk's writes go to workers too, until QUIET_WRITES of them in a row were
quick. They need no ordering: the owner of a file waits for one append before it makes the next.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable, Coroutine
from typing import TypeVar

from barnabas.core.clock import Clock
from barnabas.core.descriptors import OsNode
from barnabas.core.disk import Buffer, HandleClosed, storage_error, storage_errors, sync_failed_before
from barnabas.core.errors import StorageError
from barnabas.core.open_files import OpenFiles
from barnabas.core.workers import Workers

STALL_SECONDS = 0.002
QUIET_SECONDS = 0.0005
QUIET_WRITES = 64
INLINE_READ_BYTES = 64 * 1024
INLINE_FREE_BYTES = 1024 * 1024
TAIL_BYTES = 8 * 1024 * 1024
# A write of a megabyte makes the page cache look for memory in pieces of that size, which can cost several
# times as much as the copy itself (measured on Linux 6.18: 0.9 to 1.9 CPU-seconds a GB, against 0.2).
WRITE_BYTES = 256 * 1024

_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)

T = TypeVar("T")
Rename = Callable[[str, str], Coroutine[None, None, None]]


class FileIo:
    """State shared by the files of one disk: its workers, and the known properties of its file system."""

    def __init__(self, files: OpenFiles, workers: Workers, clock: Clock, rename: Rename) -> None:
        self.files = files
        self.workers = workers
        self.rename = rename
        self.monotonic = clock.monotonic
        self.stalled = False
        self.nowait = bool(_RWF_NOWAIT)
        self._quiet_writes = 0

    def write(self, node: OsNode, position: int, data: Buffer, written: int = 0) -> None:
        """Write the rest of `data` after `written` bytes, or cut the file back to its size.

        Runs on the loop or in a worker. It sets the size itself, so that the size is right even if the
        waiting task was cancelled meanwhile.
        """
        view = memoryview(data)
        try:
            while written < len(view):
                piece = view[written : written + WRITE_BYTES]
                written += os.pwrite(node.fd, piece, position + written)
        except OSError as error:
            raise self._undo(node, error) from error
        node.size = max(node.size, position + written)

    async def write_in_worker(self, node: OsNode, position: int, data: Buffer) -> None:
        def write() -> float:
            started = self.monotonic()
            self.write(node, position, data)
            return self.monotonic() - started

        seconds = await self.in_worker("write to", node, write)
        self._quiet_writes = self._quiet_writes + 1 if seconds < QUIET_SECONDS else 0
        if self._quiet_writes >= QUIET_WRITES:
            self._quiet_writes = 0
            self.stalled = False

    def read_cached(self, node: OsNode, buffer: bytearray, position: int) -> int:
        """Fill `buffer` from the page cache; returns the bytes read, 0 if the kernel cannot tell."""
        try:
            return os.preadv(node.fd, (buffer,), position, _RWF_NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise storage_error(error, "read", self.files.describe(node.path)) from error
            self.nowait = False
            return 0

    async def in_worker(self, doing: str, node: OsNode, call: Callable[[], T]) -> T:
        """Run `call` in a worker while the node keeps its descriptor."""
        node.busy += 1
        node.used = True
        try:
            return await self.workers.run(call)
        except OSError as error:
            raise storage_error(error, doing, self.files.describe(node.path)) from error
        finally:
            node.busy -= 1
            self.files.settle(node)

    def _undo(self, node: OsNode, error: OSError) -> StorageError:
        failure = storage_error(error, "write to", self.files.describe(node.path))
        try:
            os.ftruncate(node.fd, node.size)
        except OSError as second:
            node.overhang = node.slow = True
            return type(failure)(
                f"{failure}; and what it left behind byte {node.size} cannot be cut: {second}"
            )
        return failure


class OsFile:
    """A handle on a file of an OsDisk."""

    __slots__ = ("_closed", "_io", "_node")

    def __init__(self, io: FileIo, node: OsNode) -> None:
        self._io = io
        self._node = node
        self._closed = False

    @property
    def path(self) -> str:
        return self._node.path

    @property
    def size(self) -> int:
        return self._node.size

    @property
    def pins(self) -> int:
        return self._node.pins

    @property
    def is_gone(self) -> bool:
        node = self._node
        return self._closed or (not node.linked and node.fd < 0)

    async def append(self, data: Buffer) -> None:
        # The hot path: it may add a fraction of a microsecond to the system call.
        node = self._node
        if node.slow or self._closed:
            self._ready("append to")
        io = self._io
        size = node.size
        if io.stalled:
            await io.write_in_worker(node, size, data)
            return
        started = io.monotonic()
        try:
            first = data if len(data) <= WRITE_BYTES else memoryview(data)[:WRITE_BYTES]
            written = os.pwrite(node.fd, first, size)
        except OSError as error:
            raise storage_error(error, "append to", io.files.describe(node.path)) from error
        if written != len(data):
            io.write(node, size, data, written)
        node.size = size + len(data)
        node.used = True
        if io.monotonic() - started > STALL_SECONDS:
            io.stalled = True

    async def write_at(self, position: int, data: Buffer) -> None:
        node = self._ready("write to")
        if self._io.stalled:
            await self._io.write_in_worker(node, position, data)
        else:
            self._io.write(node, position, data)

    async def read(self, position: int, size: int) -> bytes:
        node = self._node
        if node.slow or self._closed:
            self._ready("read")
        node.used = True
        io = self._io
        size = min(size, node.size - position)
        if size <= 0:
            return b""
        if not io.nowait:
            if size <= INLINE_READ_BYTES:
                with storage_errors("read", io.files.describe(node.path)):
                    return _read_all(node.fd, size, position)
            return await io.in_worker("read", node, lambda: _read_all(node.fd, size, position))
        buffer = bytearray(size)
        cached = io.read_cached(node, buffer, position)
        if cached == size:
            return bytes(buffer)
        rest = await io.in_worker("read", node, lambda: _read_all(node.fd, size - cached, position + cached))
        return bytes(memoryview(buffer)[:cached]) + rest

    async def truncate(self, size: int) -> None:
        node = self._ready("truncate")
        io = self._io
        if node.size - size > INLINE_FREE_BYTES:
            await io.in_worker("truncate", node, lambda: _truncate(node, size))
        else:
            with storage_errors("truncate", io.files.describe(node.path)):
                _truncate(node, size)

    async def sync(self) -> None:
        node = self._ready("sync")
        if node.unsyncable:
            raise sync_failed_before(self._io.files.describe(node.path))
        await self._io.in_worker("sync", node, lambda: _sync(node))

    async def rename(self, path: str) -> None:
        node = self._node
        if self._closed or not node.linked:
            self._ready("rename")
            raise self._missing("rename")  # pinned, but its name may be another file's now
        await self._io.rename(node.path, path)

    def pin(self) -> None:
        if self._closed or not self._node.linked:
            self._ready("pin")
        self._node.pins += 1

    def unpin(self) -> None:
        self._node.pins -= 1
        self._io.files.settle(self._node)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._node.handles -= 1
            self._io.files.settle(self._node)

    def descriptor(self) -> int:
        """The descriptor, to send from; the caller holds a pin, or does not yield to the loop."""
        node = self._node
        if node.slow or self._closed:
            self._ready("read")
        node.used = True
        return node.fd

    def is_cached(self, position: int, size: int) -> bool:
        """Whether reading that range will probably not wait for the medium, judged by its two ends."""
        node, io = self._node, self._io
        if not io.nowait:
            return node.size - position <= TAIL_BYTES
        self.descriptor()
        probe = bytearray(1)
        return all(io.read_cached(node, probe, at) for at in (position, position + size - 1))

    def _ready(self, doing: str) -> OsNode:
        """The node, with a descriptor and without remains of a failed write; or raises."""
        node, io = self._node, self._io
        where = io.files.describe(node.path)
        if io.files.closed or (self._closed and not (doing == "read" and node.pins)):
            raise HandleClosed(f"cannot {doing} {where}: the handle is closed")
        if node.fd < 0:
            if not node.linked:
                raise self._missing(doing)
            io.files.open_descriptor(node)
        if node.overhang and doing != "read":
            with storage_errors("cut the remains of a failed write from", where):
                os.ftruncate(node.fd, node.size)
            node.overhang = False
        node.slow = node.overhang
        return node

    def _missing(self, doing: str) -> StorageError:
        where = self._io.files.describe(self._node.path)
        return storage_error(FileNotFoundError(errno.ENOENT, "removed"), doing, where)


def _read_all(fd: int, size: int, position: int) -> bytes:
    data = os.pread(fd, size, position)
    while len(data) < size and (more := os.pread(fd, size - len(data), position + len(data))):
        data += more
    return data


def _truncate(node: OsNode, size: int) -> None:
    os.ftruncate(node.fd, size)
    node.size = size
    if size == 0:
        node.unsyncable = False


def _sync(node: OsNode) -> None:
    try:
        if sys.platform == "darwin":
            fcntl.fcntl(node.fd, fcntl.F_FULLFSYNC)  # fsync there stops at the drive's own cache
        else:
            os.fdatasync(node.fd)
    except OSError:
        node.unsyncable = True
        raise
