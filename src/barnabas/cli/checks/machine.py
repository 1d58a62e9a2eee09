"""What a node needs of this machine: Python, the compiled kernel, the event loop, open files."""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from barnabas import __version__
from barnabas.cli.checks.findings import Finding, Section, ok, problem, warning
from barnabas.records import kernel

_ENOUGH_FILES = 10_000
_FEWEST_FILES = 1024


def check_machine() -> Section:
    """This machine, as a node would find it."""
    return Section("this machine", list(_findings()))


def _findings() -> Iterator[Finding]:
    yield ok(
        f"Barnabas {__version__}, Python {platform.python_version()} on {platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} cores"
    )
    if sys.platform == "darwin":
        yield warning(
            "on macOS reads are not told from the page cache, and fsync is F_FULLFSYNC: slower than on Linux",
            "develop here, measure and run on Linux",
        )
    elif sys.platform != "linux":
        yield warning(f"{platform.system()} is not tested", "run on Linux")
    yield _kernel()
    yield _event_loop()
    yield _open_files()


def _kernel() -> Finding:
    if kernel.PURE_REASON is None:
        return ok(f"record kernel: compiled ({kernel.NAME})")
    return warning(
        f"record kernel: the pure-Python twin serves, many times slower: {kernel.PURE_REASON}",
        "install a wheel for this platform, or a C compiler and install Barnabas again",
    )


def _event_loop() -> Finding:
    try:
        return ok(f"event loop: uvloop {version('uvloop')}")
    except PackageNotFoundError:
        return warning("event loop: asyncio's own; uvloop's is faster", "pip install uvloop")


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    shown = "as many as wanted" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    text = f"open files: {soft:,} now, {shown} at most (a node takes what it may)"
    advice = "raise the limit: LimitNOFILE= of the service, or ulimit -n"
    if allowed < _FEWEST_FILES:
        return problem(text, advice)
    if allowed < _ENOUGH_FILES:
        return warning(f"{text}; connections and partitions share them", advice)
    return ok(text)
