"""The disk interface: the operations of a file system that the log uses.

A `Disk` is one log directory; paths are relative to it, with `/` between parts. Every operation that may
touch the medium is awaitable, so that the log's code is the same whether a call runs on the loop, in a worker
thread or in simulated time. Every implementation keeps these rules (tests/core checks them):

- A `File` is a logical handle. It outlives its file descriptor: the disk may close an idle descriptor and
  reopen it on the next use, so that ten thousand open files do not need ten thousand descriptors.
- `File.size` is known without a system call. `append` writes at that size, whole or not at all: when it
  raises, the file ends where it ended before (or, if even the cut failed, the error says so).
- A pinned file keeps its descriptor: its readers can read it to the end after it is renamed or removed.
- Nothing is durable before `sync` (contents of a file) and `sync_dir` (names in a directory) return, or
  `sync_all` (both, of all files). Once a sync of a file has failed, every later one fails: the kernel may
  have dropped the pages that it could not write, and would report success the next time. Only a restart,
  which reads the files, or emptying the file ends that state. `sync_all` fails for all files.
- Every failure is a `StorageError` naming the file, the operation and the next step, never an `OSError`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, NamedTuple, Protocol

from barnabas.core.errors import InvariantViolation, StorageError

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """An open file. Its owner makes one call at a time; reads may run beside it."""

    @property
    def path(self) -> str:
        """The current path, relative to the disk."""

    @property
    def size(self) -> int:
        """The length in bytes."""

    @property
    def pins(self) -> int:
        """The number of pins that readers hold."""

    @property
    def is_gone(self) -> bool:
        """Whether the file was closed or removed, so that it cannot be pinned any more."""

    async def append(self, data: Buffer) -> None:
        """Write all of `data` at the end, or nothing."""

    async def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite (or extend) from `position`; the contents are undefined after a failure."""

    async def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""

    async def truncate(self, size: int) -> None:
        """Cut the file to `size`, or extend it with zeros (sparse)."""

    async def sync(self) -> None:
        """Return when everything written to the file before this call is durable."""

    async def rename(self, path: str) -> None:
        """Move the open file, replacing any file at `path`."""

    def pin(self) -> None:
        """Keep the file readable, even if it is renamed or removed, until the matching `unpin`."""

    def unpin(self) -> None:
        """Undo one `pin`."""

    def close(self) -> None:
        """Close the handle; harmless when repeated. Pinned readers can go on reading."""


class FileRange(NamedTuple):
    """A range of a file to be sent to a socket: a fetch response has these in place of bytes."""

    file: File
    position: int
    size: int


class Space(NamedTuple):
    """The size of the medium, and how much of it this node may still use."""

    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """One log directory of a node."""

    def describe(self, path: str) -> str:
        """The full name of `path`, for messages."""

    async def open(self, path: str, *, create: bool = False) -> File:
        """A handle on an existing file, or with `create` on a new or existing one."""

    async def size_of(self, path: str) -> int | None:
        """The length of a file, None if there is none."""

    async def modified_ms(self, path: str) -> int:
        """The time of a file's last write, in wall-clock milliseconds."""

    async def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of a file's last write, until it is written again; a power loss may undo that."""

    async def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty if there is no such directory."""

    async def mkdir(self, path: str) -> None:
        """Make a directory and its parents; harmless if it exists."""

    async def rename(self, path: str, new_path: str) -> None:
        """Move a file or directory, replacing a file of the new name. Open handles follow the move."""

    async def remove(self, path: str) -> None:
        """Remove a file; harmless if there is none."""

    async def remove_tree(self, path: str) -> None:
        """Remove a directory and its contents; harmless if there is none."""

    async def sync_dir(self, path: str) -> None:
        """Return when names made, moved or removed in that directory before this call are durable."""

    @property
    def can_sync_all(self) -> bool:
        """Whether `sync_all` is reliable on this file system, and no file's sync has failed before."""

    async def sync_all(self) -> None:
        """Return when everything written to all files, and all names, before this call are durable."""

    async def space(self) -> Space:
        """The size and free space of the medium, which may hold other files too."""

    @property
    def boot_id(self) -> str | None:
        """An id of the machine's current boot. Written data that was not synced is still in the page cache as
        long as the id stays the same. None if the system has no such id."""

    async def lock(self, path: str) -> Callable[[], None]:
        """Take a lock, held against other processes (Java's too) and within this one; returns its release."""

    def close(self) -> None:
        """Close every handle and lock; harmless when repeated."""


class HandleClosed(InvariantViolation):
    """A file or disk was used after it was closed."""


class DiskFull(StorageError):
    """No space is left, or a quota is used up."""


class TooManyOpenFiles(StorageError):
    """The process or the system is out of file descriptors."""


class DirectoryLocked(StorageError):
    """Another node already uses this log directory."""


class FileMissing(StorageError):
    """A file that should exist does not."""


class DiskFailed(StorageError):
    """The device or the file system reports an error."""

    advice: ClassVar[str] = "check the device and the file system (dmesg, smartctl), then restart the node"


def storage_error(error: OSError, doing: str, where: str) -> StorageError:
    """The named error for an OSError that was raised while `doing` something to `where`."""
    said = os.strerror(error.errno) if error.errno else str(error)
    kind: type[StorageError]
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        kind, advice = (
            DiskFull,
            "free some space or shorten the retention; the node goes on when there is room",
        )
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        kind, advice = TooManyOpenFiles, "raise the limit on open files (ulimit -n) and restart the node"
    elif error.errno == errno.ENOENT:
        kind, advice = FileMissing, "was it removed by hand? restart the node to recover what is left"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        kind, advice = DiskFailed, "make the directory writable for the user that runs the node"
    else:
        kind, advice = DiskFailed, DiskFailed.advice
    return kind(f"cannot {doing} {where}: {said}; {advice}")


def sync_failed_before(where: str) -> DiskFailed:
    """The error for a file whose last sync failed."""
    return DiskFailed(
        f"cannot sync {where}: an earlier sync failed, and may have lost data; {DiskFailed.advice}"
    )


def directory_locked(where: str) -> DirectoryLocked:
    """The error for a lock file that another node holds."""
    return DirectoryLocked(
        f"cannot lock {where}: another node uses this log directory; stop it, or give this node its own"
    )


@contextmanager
def storage_errors(doing: str, where: str) -> Iterator[None]:
    """Translate an OSError raised inside into its named StorageError."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, doing, where) from error
