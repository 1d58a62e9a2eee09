"""Where benchmarks keep what they write: on the disk of the working directory, and gone afterwards.

Not under /tmp, which may be memory. A benchmark says how many bytes it may come to hold at a time; where the
disk has no room for them and a reserve, it refuses to begin.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

RESERVE_BYTES = 2 << 30


class NoRoom(Exception):
    """The disk is too full for what was asked."""


@contextlib.contextmanager
def scratch(needed_bytes: int = 0) -> Iterator[Path]:
    """A fresh directory; NoRoom unless `needed_bytes` fit beside the reserve."""
    free_bytes = shutil.disk_usage(".").free
    if needed_bytes and free_bytes < needed_bytes + RESERVE_BYTES:
        raise NoRoom(f"needs {needed_bytes / 1e9:.1f} GB and a reserve; {free_bytes / 1e9:.1f} GB are free")
    path = Path(tempfile.mkdtemp(prefix=".bench-", dir="."))
    try:
        yield path.resolve()
    finally:
        shutil.rmtree(path)
