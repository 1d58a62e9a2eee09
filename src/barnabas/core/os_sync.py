"""syncfs(2): one sync for everything on a file system, instead of one for each file.

It can be relied upon where three things hold. The kernel reports failed writes by it (Linux 5.8 and later;
before that it said "done" after them). The file system waits for the medium in it, as the ones listed here
do; others, FUSE among them, may pass the data on and return. And the descriptor was opened before the writes:
it reports the failures since it was opened, which is why a disk opens one when it is locked.
"""

from __future__ import annotations

import os
import re
import sys

# f_type of statfs(2): ext2 to ext4, XFS, btrfs, F2FS, tmpfs
_FILE_SYSTEMS = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994})
_FIRST_KERNEL = (5, 8)
_STATFS_BYTES = 512  # struct statfs has some 120; its first field is f_type, a long


def can_sync_file_system(fd: int) -> bool:
    """Whether `sync_file_system` tells the truth about the file system of that descriptor."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if sys.platform != "linux" or release is None:
        return False
    if (int(release[1]), int(release[2])) < _FIRST_KERNEL:
        return False
    return _type_of(fd) in _FILE_SYSTEMS


def sync_file_system(fd: int) -> None:
    """Return when all that was written to the file system before, names included, is durable; or OSError."""
    import ctypes  # only a stop with many partitions needs it

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
