"""Commands as their users run them: in this process where that is enough, in one of their own for signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.cli.main import main

DEADLINE_S = 120.0  # nothing takes as long, even on a busy machine


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    out: bytes
    err: str


class Commands:
    """Runs commands against one cluster, in this process."""

    def __init__(self, bootstrap: str, captured: pytest.CaptureFixture[bytes], folder: Path) -> None:
        self.bootstrap = bootstrap
        self._captured = captured
        self._folder = folder

    def __call__(self, *arguments: object, stdin: bytes = b"") -> Done:
        given = self._folder / "stdin"
        given.write_bytes(stdin)
        self._captured.readouterr()
        with given.open() as file, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", file)
            patch.setenv("BARNABAS_BOOTSTRAP", self.bootstrap)
            status = main([str(each) for each in arguments])
        printed = self._captured.readouterr()
        return Done(status, printed.out, printed.err.decode())

    def ok(self, *arguments: object, stdin: bytes = b"") -> bytes:
        """What a command that succeeds prints."""
        done = self(*arguments, stdin=stdin)
        assert done.status == 0, done.err
        return done.out


def start(
    bootstrap: str, *arguments: str, command: Sequence[str] = ("-m", "barnabas")
) -> subprocess.Popen[bytes]:
    """A command in a process of its own, with pipes at all ends."""
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": bootstrap}
    return subprocess.Popen(
        [sys.executable, *command, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=heed_interrupts,
    )


def heed_interrupts() -> None:
    """A shell has what it starts in the background ignore SIGINT: these tests, and so their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, for as long as is sensible."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)
