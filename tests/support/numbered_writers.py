"""Processes of several clients that write numbered records, and what was acknowledged to them.

The programs are tests/interop/numbered_writer.py and its Java twin: acks=all, idempotent, otherwise with the
client's default settings.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

from tests.support.apache_kafka import java
from tests.support.java_clients import PROGRAMS

CONFLUENT, JAVA = "confluent", "java"
FINISH_DEADLINE_S = 330.0
ROOT = Path(__file__).resolve().parent.parent.parent


class Answer(NamedTuple):
    """A record that was acknowledged."""

    partition: int
    number: int
    offset: int
    sent_ns: int
    answered_ns: int


class NumberedWriter:
    """One process, which writes from the start of the `with` block until `finish`."""

    def __init__(
        self, client: str, bootstrap: str, topic: str, partitions: int, folder: Path, tick_ms: int
    ) -> None:
        """`tick_ms`: between the records of each partition."""
        self.name = self.client = client
        self.answers: list[Answer] = []  # only grows, in the order in which they came
        self.errors: list[str] = []
        self._arguments = [bootstrap, topic, self.name, str(partitions), str(tick_ms)]
        self._log = folder / f"writer-{client}.log"
        self._process: subprocess.Popen[str] | None = None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._has_ended = False

    def __enter__(self) -> NumberedWriter:
        started = [sys.executable, "-m", "tests.interop.numbered_writer"]
        if self.client == JAVA:
            started = java(PROGRAMS / "NumberedWriter.java")
        with self._log.open("ab") as complaints:
            self._process = subprocess.Popen(
                [*started, *self._arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                start_new_session=True,  # Linux shares a busy processor among sessions
            )
        self._listener.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            end.close()

    def _listen(self) -> None:
        assert self._process is not None
        output: IO[str] | None = self._process.stdout
        assert output is not None
        for line in output:
            if line.startswith("error"):
                self.errors.append(line.strip())
            elif line == "end\n":
                self._has_ended = True
            else:
                self.answers.append(Answer(*map(int, line.split())))

    def finish(self) -> None:
        """No more is sent; returns when all that was sent is answered."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write("finish\n")
        self._process.stdin.flush()
        self._listener.join(FINISH_DEADLINE_S)
        said = self._log.read_text(errors="replace")[-2000:]
        assert self._has_ended, f"the writer {self.name} has not ended as it should: {said}"
