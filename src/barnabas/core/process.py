"""Metrics of this process, from the operating system and the interpreter.

Numbers that the system does not provide (there is no /proc on macOS) are left out.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import time

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def thread_seconds() -> float:
    """The processor time of the calling thread."""
    return time.thread_time()


def process_numbers() -> dict[str, float]:
    """By the names that Prometheus' own clients use."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    numbers = {
        "process_cpu_seconds_total": usage.ru_utime + usage.ru_stime,
        "process_max_fds": float("inf") if soft == resource.RLIM_INFINITY else soft,
    }
    try:
        with open("/proc/self/statm", "rb") as file:
            virtual_pages, resident_pages = file.read().split()[:2]
        numbers["process_virtual_memory_bytes"] = int(virtual_pages) * _PAGE_BYTES
        numbers["process_resident_memory_bytes"] = int(resident_pages) * _PAGE_BYTES
        numbers["process_start_time_seconds"] = _start_time_seconds()
        numbers["process_open_fds"] = len(os.listdir("/proc/self/fd"))
    except (OSError, ValueError, IndexError):  # no Linux, or /proc is not readable
        pass
    return numbers


def _start_time_seconds() -> float:
    with open("/proc/self/stat", "rb") as file:
        # the name of the program stands in parentheses, and may contain anything
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    with open("/proc/stat", "rb") as file:
        booted = next(int(line.split()[1]) for line in file if line.startswith(b"btime "))
    return booted + ticks / os.sysconf("SC_CLK_TCK")


def collections_by_generation() -> list[dict[str, int]]:
    """The garbage collector's statistics: collections, collected, uncollectable."""
    return gc.get_stats()


def python_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def python_implementation() -> str:
    return sys.implementation.name
