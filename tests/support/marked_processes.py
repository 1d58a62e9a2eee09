"""Processes of one family, found by a mark in their environment, which children inherit: whoever is left of
it when its parents are gone is found as well. Linux only."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARK = "BARNABAS_TESTS_FAMILY"


class Process(NamedTuple):
    """One that runs; a parent that is not of the family is none."""

    pid: int
    parent: int
    command: tuple[str, ...]

    def has(self, word: str) -> bool:
        """Whether a word of its command ends so."""
        return any(each.endswith(word) for each in self.command)


def family(mark: str) -> list[Process]:
    """All that run now with that mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError):  # it has ended, or is not ours to look at
                if wanted in (path / "environ").read_bytes().split(b"\0"):
                    found.append(_process(path))
    pids = {each.pid for each in found}
    return [each if each.parent in pids else each._replace(parent=0) for each in found]


def _process(path: Path) -> Process:
    command = (path / "cmdline").read_text(errors="replace").split("\0")
    after_name = (path / "stat").read_text().rpartition(")")[2].split()
    return Process(int(path.name), int(after_name[1]), tuple(command))


class Victim:
    """A process that is to be killed later: held, so that nobody else can be meant by its number."""

    def __init__(self, process: Process) -> None:
        self._held = os.pidfd_open(process.pid)

    def __enter__(self) -> Victim:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._held)

    def kill(self) -> bool:
        """SIGKILL; whether it was still there."""
        return self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> bool:
        """Whether it was still there to get it."""
        try:
            signal.pidfd_send_signal(self._held, number)
        except ProcessLookupError:
            return False
        return True


def kill_family(mark: str) -> None:
    """Until nobody is left, who may have had children meanwhile."""
    while rest := family(mark):
        for each in rest:
            with suppress(ProcessLookupError), Victim(each) as victim:
                victim.kill()
