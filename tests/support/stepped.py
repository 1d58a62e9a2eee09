"""A process that is led from outside one step at a time: a line asks for a step, a line says what came of it.

    ok ...
    error NAME what it says

Between two steps it waits for the next one: where it is killed or stopped is known exactly.
"""

from __future__ import annotations

import contextlib
import select
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

STEP_DEADLINE_S = 150.0  # longer than a program gives a step
ROOT = Path(__file__).resolve().parent.parent.parent


class StepFailed(AssertionError):
    """A step was refused, or never answered."""


class SteppedProcess:
    """One of them; it understands what its program does."""

    def __init__(self, started: Sequence[str], arguments: Sequence[str]) -> None:
        self.name = " ".join(arguments)
        self._asked = ""
        self._complaints: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 closed by `kill`
        self._process = subprocess.Popen(
            [*started, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            start_new_session=True,  # Linux shares a busy processor among sessions
        )

    def ask(self, step: str) -> None:
        """Begin a step, without waiting for what comes of it."""
        assert self._process.stdin is not None
        self._asked = step
        with contextlib.suppress(BrokenPipeError):  # one that has ended has no answer
            self._process.stdin.write(step + "\n")
            self._process.stdin.flush()

    def answer(self, deadline_s: float = STEP_DEADLINE_S) -> list[str]:
        """What came of the step: ["ok", ...] or ["error", name, ...]."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], deadline_s)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self._complaints.seek(0)
            told = self._complaints.read()[-4000:]
            raise StepFailed(f"{self.name}: no answer to {self._asked!r}; it said\n{told}")
        return line.split()

    def do(self, step: str, deadline_s: float = STEP_DEADLINE_S) -> list[str]:
        """A step that succeeds, and what it gave."""
        self.ask(step)
        return self.given(step, deadline_s)

    def given(self, step: str, deadline_s: float = STEP_DEADLINE_S) -> list[str]:
        """What a step gave that was begun before, and succeeds."""
        status, *given = self.answer(deadline_s)
        if status != "ok":
            raise StepFailed(f"{self.name}: {step} was refused: {' '.join(given)}")
        return given

    def told(self, step: str) -> str:
        """A step, and "ok" or the name of its error."""
        self.ask(step)
        status, *given = self.answer()
        return status if status == "ok" else given[0]

    def pause(self) -> None:
        """As a machine that hangs: nothing of it runs, not even what runs beside the steps."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; harmless when repeated."""
        if self._process.poll() is None:
            self._process.kill()
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            with contextlib.suppress(BrokenPipeError):  # what it was asked last was never read
                end.close()
        self._process.wait()
        self._complaints.close()
