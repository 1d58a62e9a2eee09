"""syncfs(2): one sync for a whole file system, instead of one for each file.

It is reliable under three conditions. The kernel reports failed writes by it (Linux 5.8 and later; earlier
versions report success). The file system waits for the medium, as those listed here do; others, such as FUSE,
may pass the data on and return. The descriptor was opened before the writes: syncfs reports the failures
since then, which is why a disk opens one when it is locked.
"""

from __future__ import annotations

import os
import re
import sys

# f_type of statfs(2): ext2 to ext4, XFS, btrfs, F2FS, tmpfs
_FILE_SYSTEMS = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994})
_FIRST_KERNEL = (5, 8)
_STATFS_BYTES = 512  # struct statfs has about 120; its first field is f_type, a long


def can_sync_file_system(fd: int) -> bool:
    """Whether `sync_file_system` is reliable on the file system of that descriptor."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if sys.platform != "linux" or release is None:
        return False
    if (int(release[1]), int(release[2])) < _FIRST_KERNEL:
        return False
    return _type_of(fd) in _FILE_SYSTEMS


def sync_file_system(fd: int) -> None:
    """Return when everything written to the file system before, names included, is durable; or OSError."""
    import ctypes  # needed only when a node with many partitions stops

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(fd):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _type_of(fd: int) -> int | None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if not (hasattr(libc, "syncfs") and hasattr(libc, "fstatfs")):
        return None
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if libc.fstatfs(fd, buffer):
        return None
    return ctypes.c_ulong.from_buffer(buffer).value & 0xFFFFFFFF
