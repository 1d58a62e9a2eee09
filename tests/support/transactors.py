"""Transactional processes of real clients, led from outside one step at a time (tests/interop/transactor.py).

    with Transactors() as start:
        process = start("java-4.3.0", bootstrap, "ledger", group="clerks", source="letters")
        process.do("init")
        process.do("take 2")          # ["0:0:a", "0:1:b"]
        process.told("commit")        # "ok", or the name of the error
        process.pause(); process.wake(); process.kill()

Between two steps a process waits for the next one: where it is killed or stopped is known exactly.
"""

from __future__ import annotations

import contextlib
import functools
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from tests.support import foreign
from tests.support.apache_kafka import LEAN_JVM, VERSION
from tests.support.java_clients import compiled, jars

JAVA_OLD = "3.9.1"
PYTHON = ("confluent", "aiokafka", "kafka-python")
JAVA = (f"java-{VERSION}", f"java-{JAVA_OLD}")
STEP_DEADLINE_S = 60.0
ROOT = Path(__file__).resolve().parent.parent.parent


class StepFailed(AssertionError):
    """A step was refused, or never answered."""


def command(client: str) -> list[str]:
    """What starts a process of that client."""
    if client in PYTHON:
        return [sys.executable, "-m", "tests.interop.transactor", client]
    if client == "kafkajs":
        return foreign.node_command("transactor.js")
    if client == "franz-go":
        return foreign.go_command("transactor")
    return _java_command(client.removeprefix("java-"))


@functools.cache
def _java_command(version: str) -> list[str]:
    classes = compiled(ROOT / "tests" / "interop" / "java" / "Transactor.java", jars(JAVA_OLD))
    logging = f"-Dlog4j2.configurationFile={ROOT / 'tests' / 'support' / 'log4j2.xml'}"
    return ["java", *LEAN_JVM, logging, "-cp", f"{classes}:{jars(version)}/*", "Transactor"]


class Transactor:
    """One process."""

    def __init__(self, started: Sequence[str], arguments: Sequence[str]) -> None:
        self.name = " ".join(arguments)
        self._complaints: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 closed by `kill`
        self._process = subprocess.Popen(
            [*started, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )

    def ask(self, step: str) -> None:
        """Begin a step, without waiting for what comes of it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # one that has ended has no answer
            self._process.stdin.write(step + "\n")
            self._process.stdin.flush()

    def answer(self) -> list[str]:
        """What came of the step: ["ok", ...] or ["error", name, ...]."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], STEP_DEADLINE_S)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self._complaints.seek(0)
            raise StepFailed(f"{self.name}: no answer; it said\n{self._complaints.read()[-4000:]}")
        return line.split()

    def do(self, step: str) -> list[str]:
        """A step that succeeds, and what it gave."""
        self.ask(step)
        return self.given(step)

    def given(self, step: str) -> list[str]:
        """What a step gave that was begun before, and succeeds."""
        status, *given = self.answer()
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


class Transactors:
    """Starts processes; none outlives the `with` block."""

    def __init__(self) -> None:
        self._all: list[Transactor] = []

    def __enter__(self) -> Transactors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._all:
            process.kill()

    def __call__(
        self,
        client: str,
        bootstrap: str,
        name: str,
        *,
        timeout_ms: int = 60_000,
        group: str = "-",
        source: str = "-",
    ) -> Transactor:
        """A process of that client, with `name` as transactional id; a producer alone unless in a group."""
        process = Transactor(command(client), [bootstrap, name, str(timeout_ms), group, source])
        self._all.append(process)
        return process
