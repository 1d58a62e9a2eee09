"""The disk seam: what the log asks of a file system, and nothing more.

A `Disk` is one log directory; paths are relative to it, with `/` between parts. Everything that may touch
the medium is awaitable, so that the log's code is the same whether a call runs on the loop, in a worker
thread or in simulated time. The rules every implementation keeps (tests/core holds them to it):

- A `File` is a logical handle. It outlives its file descriptor: the disk may close an idle descriptor and
  reopen it on the next use, so ten thousand open files cost no ten thousand descriptors.
- `File.size` is known without a system call. `append` writes at that size, whole or not at all: when it
  raises, the file ends where it ended before (or, if even the cut failed, the error says so).
- A file that is pinned keeps its descriptor: a renamed or removed file can be read by its pinned readers
  to the end.
- Nothing is durable before `sync` (contents of a file) and `sync_dir` (names in a directory) return, or
  `sync_all` (both, of all files). Once a sync has failed, every later one of that file fails: the kernel may
  have dropped what it could not write, and would call the next sync a success. A new start, which reads what
  is there, can tell; and a file that was emptied starts anew. `sync_all` fails for all files.
- Every failure is a `StorageError` naming the file, the operation and the next step; an `OSError` never
  gets out.
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
    """An open file. Calls on one file are made one after another by its owner; reads may run beside them."""

    @property
    def path(self) -> str:
        """Where it is now, relative to its disk."""

    @property
    def size(self) -> int:
        """Its length in bytes."""

    @property
    def pins(self) -> int:
        """How many readers hold it."""

    @property
    def is_gone(self) -> bool:
        """Whether it was closed or removed, so that no further reader can pin it."""

    async def append(self, data: Buffer) -> None:
        """Write all of `data` at the end, or nothing."""

    async def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite (or extend) from `position`; what a failure leaves behind is undefined."""

    async def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""

    async def truncate(self, size: int) -> None:
        """Cut to, or extend with zeros (sparse) to, `size`."""

    async def sync(self) -> None:
        """Return when everything written to the file before this call is durable."""

    async def rename(self, path: str) -> None:
        """Move the file, open as it is, replacing what stood at `path`."""

    def pin(self) -> None:
        """Keep it readable, even if it is renamed or removed, until the matching `unpin`."""

    def unpin(self) -> None:
        """Undo one `pin`."""

    def close(self) -> None:
        """Give up the handle; harmless when repeated. Pinned readers keep what they hold."""


class FileRange(NamedTuple):
    """A stretch of a file on its way to a socket: what a fetch is answered with instead of bytes."""

    file: File
    position: int
    size: int


class Space(NamedTuple):
    """How large the medium is, and how much of it is left for this node."""

    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """One log directory of a node."""

    def describe(self, path: str) -> str:
        """The full name of `path`, for messages to people."""

    async def open(self, path: str, *, create: bool = False) -> File:
        """A handle on an existing file, or with `create` on a new or existing one."""

    async def size_of(self, path: str) -> int | None:
        """The length of a file, None where there is none."""

    async def modified_ms(self, path: str) -> int:
        """When a file was last written, in wall-clock milliseconds."""

    async def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Let a file count as last written then, until it is written again; a power loss may undo that."""

    async def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty where there is no such directory."""

    async def mkdir(self, path: str) -> None:
        """Make a directory and its parents; harmless where it exists."""

    async def rename(self, path: str, new_path: str) -> None:
        """Move a file or directory, replacing a file that stood there. Open handles follow the move."""

    async def remove(self, path: str) -> None:
        """Remove a file; harmless where there is none."""

    async def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; harmless where there is none."""

    async def sync_dir(self, path: str) -> None:
        """Return when names made, moved or removed in that directory before this call are durable."""

    @property
    def can_sync_all(self) -> bool:
        """Whether `sync_all` can be relied upon here, and no file's sync has failed before."""

    async def sync_all(self) -> None:
        """Return when everything written to all files, and all names, before this call are durable."""

    async def space(self) -> Space:
        """How much room there is on the medium, others' files on it included."""

    @property
    def boot_id(self) -> str | None:
        """Names the boot of the machine, which its page cache lives through: what was written and not synced
        is still there while this stays the same. None where the system does not tell."""

    async def lock(self, path: str) -> Callable[[], None]:
        """Take a lock, held against other processes (Java's too) and within this one; gives the release."""

    def close(self) -> None:
        """Give up every handle and lock; harmless when repeated."""


class HandleClosed(InvariantViolation):
    """A file or disk was used after it was closed."""


class DiskFull(StorageError):
    """No space is left, or a quota is used up."""


class TooManyOpenFiles(StorageError):
    """The process or the system is out of file descriptors."""


class DirectoryLocked(StorageError):
    """Another node already uses this log directory."""


class FileMissing(StorageError):
    """A file that should be there is not."""


class DiskFailed(StorageError):
    """The device or the file system reports an error."""

    advice: ClassVar[str] = "check the device and the file system (dmesg, smartctl), then restart the node"


def storage_error(error: OSError, doing: str, where: str) -> StorageError:
    """The named error for what the operating system said while `doing` something to `where`."""
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
    """The error for a lock file that someone else holds."""
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
