"""A pool of file descriptors, shared by all open files of a disk.

Ten thousand partitions have forty thousand open files; the operating system allows far fewer descriptors. So
an open file (`OsNode`) has a descriptor only while it is in use, until the pool is full and the file is
evicted. Eviction is second chance: an operation only sets `used`, which costs the hot path one store; the
sweep clears the mark the first time and closes the file the second time.

Pinned files and files with an operation in flight (`busy`) keep their descriptors, even beyond the pool's
size. Only the event loop touches the pool; worker threads use a descriptor while `busy` holds it open.
"""

from __future__ import annotations

import errno
import os
import resource
from collections import OrderedDict

OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC


class OsNode:
    """An open file, shared by its handles. `slow`: it has no descriptor, or a failed write to undo."""

    __slots__ = (
        "busy",
        "fd",
        "handles",
        "linked",
        "overhang",
        "path",
        "pins",
        "size",
        "slow",
        "unsyncable",
        "used",
    )

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self.fd = -1
        self.handles = 0
        self.pins = 0
        self.busy = 0
        self.linked = True
        self.used = False
        self.slow = True
        self.unsyncable = False
        self.overhang = False  # a failed append left bytes after `size` that could not be cut off yet


class DescriptorPool:
    """Opens and closes the descriptors of nodes, keeping about `max_open` of them."""

    def __init__(self, max_open: int) -> None:
        if max_open < 1:
            raise ValueError(f"a disk needs at least one file descriptor, not {max_open}")
        self._max_open = max_open
        self._open: OrderedDict[OsNode, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, node: OsNode, full_path: str, flags: int = OPEN_FLAGS) -> None:
        """Open a descriptor for `node`. If there is none left, close half of the idle ones and retry."""
        if len(self._open) >= self._max_open:
            self._evict(len(self._open) - self._max_open + 1)
        try:
            fd = os.open(full_path, flags, 0o644)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._evict((len(self) + 1) // 2):
                raise
            fd = os.open(full_path, flags, 0o644)
        node.fd = fd
        node.used = True
        self._open[node] = None

    def close(self, node: OsNode) -> None:
        if node.fd >= 0:
            del self._open[node]
            os.close(node.fd)
            node.fd = -1
        node.slow = True

    def close_idle(self) -> None:
        """Close every descriptor that no worker is using."""
        for node in [node for node in self._open if not node.busy]:
            self.close(node)

    def _evict(self, count: int) -> int:
        """Close up to `count` idle files; returns how many were closed."""
        closed = 0
        for _ in range(2 * len(self._open)):
            if closed == count:
                break
            node = next(iter(self._open))
            if node.pins or node.busy or node.used:
                node.used = False
                self._open.move_to_end(node)
            else:
                self.close(node)
                closed += 1
        return closed


def raise_open_file_limit() -> int:
    """Raise the soft limit on open files as far as the system allows; returns the limit now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, 10240):  # macOS refuses its own unlimited hard limit, but allows this much
        if soft == wanted or resource.RLIM_INFINITY != wanted < soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            continue
        return wanted
    return soft


def default_max_open() -> int:
    """Half of the descriptors that the process may open: the other half is for sockets."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 19 if soft == resource.RLIM_INFINITY else max(16, soft // 2)
