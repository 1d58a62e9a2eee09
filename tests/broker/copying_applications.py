"""Applications that copy an input topic to an output of their own, exactly once, while nodes fail.

- `streams`: Kafka Streams with exactly_once_v2 (tests/interop/java/WordCount.java). Every input is a word of
  its own, which goes through a repartition topic and a store with a changelog: it must be counted to 1, once.
- `spark`: a query with Barnabas's source and exactly-once sink (copying_query.py), partition by partition.

Each is killed (-9) now and then, too, and started again. A third party, librdkafka, reads what is committed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Protocol

from confluent_kafka import Consumer, TopicPartition

from tests.broker.coordinator_outputs import committed_pairs, committed_values, differences, output_of
from tests.interop.streams import Instance
from tests.support.apache_kafka import missing
from tests.support.java_clients import PROGRAMS, streams_jars, with_jars
from tests.support.marked_processes import MARK, kill_family
from tests.support.replicated_topic import ReplicatedTopic
from tests.support.spark import missing_spark

STREAMS, SPARK = "streams", "spark"
APPLICATIONS = (STREAMS, SPARK)
KILLED = 0.15  # of the rounds
TIMEOUT_MS, SESSION_MS = 60_000, 45_000  # longer than any fault
ROOT = Path(__file__).resolve().parent.parent.parent


def is_here(name: str) -> bool:
    """Whether this machine can run it."""
    return (missing() if name == STREAMS else missing_spark()) is None


def prepare(name: str) -> None:
    """Fetch and build what is not to be had in a namespace."""
    if name == STREAMS:
        with_jars(streams_jars(), PROGRAMS / "WordCount.java")


class Application(Protocol):
    """Its processes, and what its output should be."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def check(self) -> None:
        """Fail where it has ended by itself."""

    def judge(self, inputs: Sequence[Sequence[str]]) -> list[str]:
        """What is wrong with all of its output, for these values, by partition."""

    @property
    def failed(self) -> int:
        """How often it had to start over by itself."""


class StreamsApplication:
    """One instance, whose directory is kept."""

    failed = 0  # it may not

    def __init__(self, topic: ReplicatedTopic, folder: Path) -> None:
        self._bootstrap, self._output = topic.cluster.bootstrap, output_of(STREAMS)
        self._instance = Instance(
            self._bootstrap,
            folder,
            STREAMS,
            TIMEOUT_MS,
            source=topic.name,
            output=self._output,
            session_ms=SESSION_MS,
        )

    def start(self) -> None:
        self._instance.start()

    def kill(self) -> None:
        self._instance.kill()

    def check(self) -> None:
        self._instance.check()

    def judge(self, inputs: Sequence[Sequence[str]]) -> list[str]:
        """Words are by their hash in any partition, and in any order."""
        found = [
            f"{(key or b'').decode()}{'' if value == b'1' else f' was counted to {value!r}'}"
            for pairs in committed_pairs(self._bootstrap, self._output, len(inputs))
            for key, value in pairs
        ]
        expected = [each for of_partition in inputs for each in of_partition]
        return differences(self._output, sorted(expected), sorted(found))


class SparkApplication:
    """The query's driver, with all processes that it starts."""

    def __init__(self, topic: ReplicatedTopic, folder: Path) -> None:
        self._bootstrap, self._source, self._output = topic.cluster.bootstrap, topic.name, output_of(SPARK)
        self._folder = folder / SPARK
        self._folder.mkdir()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def failed(self) -> int:
        failures = self._folder / "failures.jsonl"
        return len(failures.read_text().splitlines()) if failures.exists() else 0

    def start(self) -> None:
        arguments = (self._bootstrap, self._source, self._output, str(self._folder))
        with (self._folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.broker.copying_query", *arguments],
                cwd=ROOT,
                env={**os.environ, MARK: str(self._folder), "SPARK_LOCAL_IP": "127.0.0.1"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """All of its processes; harmless when repeated."""
        kill_family(str(self._folder))
        if self._process is not None:
            self._process.wait()
            self._process = None

    def check(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            said = (self._folder / "driver.log").read_text(errors="replace")[-4000:]
            raise AssertionError(f"the driver ended with {self._process.returncode}:\n{said}")

    def judge(self, inputs: Sequence[Sequence[str]]) -> list[str]:
        """Rows of a partition keep their order."""
        found = committed_values(self._bootstrap, self._output, len(inputs))
        return [
            problem
            for number, values in enumerate(inputs)
            for problem in differences(f"{self._output}-{number}", values, found[number])
        ]


class Copying:
    """An application that runs from the `with` on, and what it has committed so far."""

    def __init__(self, name: str, topic: ReplicatedTopic, folder: Path) -> None:
        kind = {STREAMS: StreamsApplication, SPARK: SparkApplication}[name]
        self.name, self.kills, self.copied = name, 0, 0
        self._application: Application = kind(topic, folder)
        self._bootstrap, self._partitions = topic.cluster.bootstrap, topic.partitions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)

    @property
    def failed(self) -> int:
        return self._application.failed

    def __enter__(self) -> Copying:
        self._thread.start()
        self._application.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._application.kill()
        self._thread.join()

    def _count(self) -> None:
        """What is committed: also what would be there twice."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"counted-{self.name}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        places = [TopicPartition(output_of(self.name), each, 0) for each in range(self._partitions)]
        consumer.assign(places)
        while not self._stopping.is_set():
            self.copied += sum(each.error() is None for each in consumer.consume(500, 0.1))
        consumer.close()

    def change(self, random: Random) -> None:
        """Kill it, or not, and start it again."""
        if random.random() < KILLED:
            self._application.kill()
            self._application.start()
            self.kills += 1

    def wait(self, count: int, deadline_s: float) -> None:
        """Until so many records are committed in its output."""
        deadline = time.monotonic() + deadline_s
        while self.copied < count:
            self._application.check()
            assert time.monotonic() < deadline, f"{self.name} has copied {self.copied} of {count}"
            time.sleep(0.05)

    def finish(self, inputs: Sequence[Sequence[str]], deadline_s: float) -> list[str]:
        """Wait until all is copied, and end it: what is wrong."""
        self.wait(sum(map(len, inputs)), deadline_s)
        self._application.kill()
        return self._application.judge(inputs)
