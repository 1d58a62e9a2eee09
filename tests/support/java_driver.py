"""A JVM that is asked one thing after another: a line of JSON in, a line of JSON out.

To start one for each question costs a second. It is started by `with`, and ends when its input does. A
question that is not answered in time ends it.
"""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, Self

from tests.support.apache_kafka import LEAN_JVM, KafkaFailed, java

ANSWER_DEADLINE_S = 300.0


class JavaDriver:
    """The process of a single source file, with Apache Kafka on its class path."""

    def __init__(self, source: Path, jvm: Sequence[str] = LEAN_JVM) -> None:
        self._source = source
        self._jvm = tuple(jvm)
        self._process: subprocess.Popen[str] | None = None
        self._complaints: IO[str] | None = None

    def __enter__(self) -> Self:
        self._complaints = TemporaryFile("w+")
        self._process = subprocess.Popen(
            java(self._source, jvm=self._jvm),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._complaints is not None
        with self._process:  # its end of the pipe is closed, so it ends by itself
            pass
        self._complaints.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _ask(self, command: Mapping[str, Any], deadline_s: float = ANSWER_DEADLINE_S) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], deadline_s)[0]:
                process.kill()
                process.wait()
                raise KafkaFailed(f"no answer after {deadline_s:.0f} s to {command}:\n{self.complaints()}")
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise KafkaFailed(f"{self._source.stem} has ended, asked {command}:\n{self.complaints()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def complaints(self) -> str:
        """All that was logged so far at WARN or above."""
        assert self._complaints is not None
        self._complaints.seek(0)
        return self._complaints.read()
