"""The lock on a log directory, held against other processes and within this one.

`lockf` is the lock that Java's FileChannel takes, so an Apache Kafka on the same directory respects it. It
belongs to the process: a second `lockf` in the same process succeeds, and closing any descriptor of the file
releases the lock. Hence the registry of locked files, which is checked before the file is opened.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Callable

from barnabas.core.disk import directory_locked, storage_errors

_held: set[tuple[int, int]] = set()
_guard = threading.Lock()


def lock_file(full_path: str) -> Callable[[], None]:
    """Lock the file, creating it if needed; returns the release, harmless when repeated."""
    with _guard, storage_errors("lock", full_path):
        with contextlib.suppress(FileNotFoundError):
            if _identity(os.stat(full_path)) in _held:
                raise directory_locked(full_path)
        fd = os.open(full_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise directory_locked(full_path) from error
            raise
        identity = _identity(os.fstat(fd))
        _held.add(identity)
    return _Release(fd, identity)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


class _Release:
    def __init__(self, fd: int, identity: tuple[int, int]) -> None:
        self._fd = fd
        self._identity = identity

    def __call__(self) -> None:
        with _guard:
            if self._fd >= 0:
                os.close(self._fd)
                _held.discard(self._identity)
                self._fd = -1
