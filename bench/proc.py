"""What a process costs, read from outside: CPU seconds and resident memory, as Linux keeps them.

A process counts with its descendants: those alive are visited, those that ended and were waited for are in
their parent's account (in ticks of 10 ms; those alive are counted to the nanosecond).
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = resource.getpagesize()
# positions in /proc/PID/stat, counted after the command name, which may hold spaces itself
CUTIME, CSTIME = 13, 14


def cpu_seconds(pid: int) -> float:
    """User and system time of the process and its descendants since they started."""
    return sum(_on_cpu_seconds(each) for each in _family(pid))


def resident_bytes(pid: int) -> int:
    """Memory of the process and its descendants; pages that they share count once for each."""
    return sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in _family(pid)) * PAGE_BYTES


def _on_cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    waited_for = (int(fields[CUTIME]) + int(fields[CSTIME])) / TICKS_A_SECOND
    # Linux makes the number of a process's CPU clock out of its id
    return time.clock_gettime((~pid << 3) | 2) + waited_for


def _family(pid: int) -> Iterator[int]:
    yield pid
    # a thread or a child may end while it is looked at
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _family(int(child))
