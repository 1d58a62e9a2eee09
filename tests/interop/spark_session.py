"""The session of spark_answers.py, and two clusters with the same topics, for tests that compare formats."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.testing import Broker
from tests.interop.spark_topics import CLUSTER_SETTINGS, topics
from tests.support.apache_kafka import ApacheKafka
from tests.support.official_connector import official_connector

ROOT = Path(__file__).resolve().parents[2]
BOOTSTRAP = "kafka.bootstrap.servers"
OURS, OFFICIAL = "barnabas", "kafka"
FORMATS = (OFFICIAL, OURS)
ANSWER_DEADLINE_S = 600.0  # several streams are asked for at once, each of which may take minutes


class Refused(Exception):
    """What Spark says to something that it does not do."""


class BothFormats:
    """Spark with both formats, on whatever cluster."""

    def __init__(self, process: subprocess.Popen[str], log_file: Path) -> None:
        self._process = process
        self._log_file = log_file

    def ask(self, do: str, **arguments: Any) -> Any:
        """The answer, or Refused."""
        (answer,) = self.ask_all([{"do": do, **arguments}])
        if isinstance(answer, Refused):
            raise answer
        return answer

    def ask_all(self, questions: Sequence[Mapping[str, Any]]) -> list[Any]:
        """The answers to what is done at the same time; a Refused for what is refused."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(questions) + "\n")
        self._process.stdin.flush()
        in_time, _, _ = select.select([self._process.stdout], [], [], ANSWER_DEADLINE_S)
        line = self._process.stdout.readline() if in_time else ""
        assert in_time, f"no answer after {ANSWER_DEADLINE_S:.0f} s to {questions}\n{self._said()}"
        assert line, f"Spark is gone:\n{self._said()}"
        return [Refused(each["error"]) if "error" in each else each["answer"] for each in json.loads(line)]

    def _said(self) -> str:
        return self._log_file.read_text(errors="replace")[-4000:]


class Clusters(NamedTuple):
    """Addresses."""

    kafka: str
    barnabas: str


@contextmanager
def both_formats(home: Path) -> Iterator[BothFormats]:
    """A session that ends with the block."""
    connector = official_connector()
    log_file = home / "spark.log"
    command = [connector.python, "-m", "tests.interop.spark_answers", str(log_file)]
    with (home / "answers.log").open("ab") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=ROOT,
            env={**os.environ, **connector.environment},
        )
    with process:  # at the end its input is closed, which ends it, and it is waited for
        yield BothFormats(process, log_file)


@contextmanager
def clusters(home: Path) -> Iterator[Clusters]:
    """Apache Kafka and Barnabas, with the same topics in both."""
    with ExitStack() as stack:
        barnabas = stack.enter_context(Broker(settings=CLUSTER_SETTINGS)).bootstrap
        kafka = stack.enter_context(ApacheKafka(home / "kafka", settings=CLUSTER_SETTINGS)).bootstrap
        stack.enter_context(topics(barnabas))
        stack.enter_context(topics(kafka))
        yield Clusters(kafka, barnabas)
