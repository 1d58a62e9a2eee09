"""The clients that put load on a broker, each run in a process of its own and watched from outside.

`produce` and `consume` give seconds by the client's clock and CPU seconds of the broker over the same time.
There are confluent-kafka (librdkafka) and Kafka's own: its producer performance tool, and, since that of its
consumer can only join groups, a small program over the same client (java/AssignAndPoll.java). Producers keep
their defaults, so a broker gets what it gets in the field: large batches from one, 16 KiB from the other.
Readers take more at a time than by default, or their own queues would be all that is measured.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from bench.systems import Running
from tests.support.apache_kafka import java

DEADLINE_S = 180.0
ASSIGN_AND_POLL = Path(__file__).parent / "java" / "AssignAndPoll.java"
# as Kafka's own scripts run its tools
TOOL_JVM = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


class ClientFailed(Exception):
    """A client did not get through its workload."""


class Load(NamedTuple):
    """What goes through a topic."""

    topic: str
    partitions: int
    record_bytes: int
    records: int
    acks: str = "1"

    @property
    def value_bytes(self) -> int:
        """Of the values alone: what the user wanted moved."""
        return self.record_bytes * self.records


class Outcome(NamedTuple):
    """How it went."""

    value_bytes: int
    seconds: float
    broker_cpu_seconds: float

    @property
    def mb_a_second(self) -> float:
        return self.value_bytes / self.seconds / 1e6

    @property
    def cpu_seconds_a_gb(self) -> float:
        return self.broker_cpu_seconds / self.value_bytes * 1e9


class Client(Protocol):
    """Someone else's client."""

    name: str

    def produce(self, running: Running, load: Load) -> Outcome: ...

    def consume(self, running: Running, load: Load) -> Outcome: ...


class Confluent:
    """confluent-kafka, that is librdkafka."""

    name = "confluent"

    def produce(self, running: Running, load: Load) -> Outcome:
        return self._outcome("produce", running, load, record_bytes=load.record_bytes, acks=load.acks)

    def consume(self, running: Running, load: Load) -> Outcome:
        return self._outcome("consume", running, load, partitions=load.partitions)

    def _outcome(self, workload: str, running: Running, load: Load, **more: object) -> Outcome:
        results, cpu = workload_of_confluent(workload, running, topic=load.topic, count=load.records, **more)
        return Outcome(load.value_bytes, results["seconds"], cpu)


class Java:
    """Kafka's own client."""

    name = "java"
    # "500000 records sent, 152253.3 records/sec (145.20 MB/sec), 187.94 ms avg latency, ..."
    SUMMARY = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec .* ms 99\.9th", re.MULTILINE)

    def produce(self, running: Running, load: Load) -> Outcome:
        """The tool announces nothing: the broker's account is read before it starts and after it ended."""
        arguments = ["--bootstrap-server", running.bootstrap, "--topic", load.topic, "--throughput", "-1"]
        arguments += ["--num-records", str(load.records), "--record-size", str(load.record_bytes)]
        arguments += ["--command-property", f"acks={load.acks}"]
        command = java("org.apache.kafka.tools.ProducerPerformance", *arguments, jvm=TOOL_JVM)
        before = running.cpu_seconds()
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        spent = running.cpu_seconds() - before
        summary = self.SUMMARY.search(done.stdout)
        if done.returncode != 0 or summary is None or int(summary[1]) != load.records:
            raise ClientFailed(f"{command[-12:]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return Outcome(load.value_bytes, load.records / float(summary[2]), spent)

    def consume(self, running: Running, load: Load) -> Outcome:
        arguments = [running.bootstrap, load.topic, str(load.partitions), str(load.records)]
        results, cpu = watched(java(ASSIGN_AND_POLL, *arguments, jvm=TOOL_JVM), running)
        return Outcome(load.value_bytes, results["seconds"], cpu)


CLIENTS: Mapping[str, Client] = MappingProxyType({"confluent": Confluent(), "java": Java()})


def workload_of_confluent(name: str, running: Running, **arguments: object) -> tuple[dict[str, Any], float]:
    """What a workload of bench/confluent.py reports, and the broker's CPU seconds in the meantime."""
    given = json.dumps({"bootstrap": running.bootstrap, **arguments})
    return watched([sys.executable, "-m", "bench.confluent", name, given], running)


def watched(command: Sequence[str], running: Running) -> tuple[dict[str, Any], float]:
    """Run a client that says `begin` and `end {...}`, reading the broker's account at both."""
    account: list[float] = []
    results: dict[str, Any] | None = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        timer = threading.Timer(DEADLINE_S, process.kill)
        timer.start()
        complaints: list[str] = []
        listener = threading.Thread(target=complaints.extend, args=(process.stderr,))
        listener.start()
        try:
            for line in process.stdout:
                word, _, rest = line.partition(" ")
                if word.strip() in ("begin", "end"):
                    account.append(running.cpu_seconds())
                if word == "end":
                    results = json.loads(rest)
            process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
            listener.join()
    if process.returncode != 0 or results is None:
        raise ClientFailed(f"{list(command)} ended with {process.returncode}:\n{''.join(complaints)[-4000:]}")
    return results, account[-1] - account[0]
