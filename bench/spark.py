"""Spark's own Kafka connector and ours, in turns, in one Spark session on one broker (Barnabas).

Here the two systems are the connectors: `barnabas` is format("barnabas"), `kafka` is format("kafka"), the
one that Spark publishes as a jar. Rows are 100 bytes. Reads go to nowhere (Spark's `noop`) or to Parquet;
writes are of rows that Spark makes, from as many tasks as there are cores; latency is that of a record on
its way through a query from topic to topic, to a reader of what is committed.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count as counter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench.clients import CLIENTS, ClientFailed, Load
from bench.options import Options
from bench.report import Pair, Target, at_least, at_most
from bench.scratch import scratch
from bench.sidebyside import announce, pair
from bench.systems import SYSTEMS, Running
from bench.topics import create_topic, delete_topics
from tests.support.official_connector import official_connector

NEEDED_BYTES = 8 << 30
DEADLINE_S = 600.0
VALUE_BYTES = 100
CORES = 2
NAMES = counter(1)
EXACTLY_ONCE: Mapping[str, str] = MappingProxyType({"deliveryGuarantee": "exactly-once"})
AT_LEAST_ONCE: Mapping[str, str] = MappingProxyType({"deliveryGuarantee": "at-least-once"})


class Jobs:
    """The process that runs them (bench/spark_jobs.py)."""

    def __init__(self, process: subprocess.Popen[str], log_file: Path) -> None:
        self._process = process
        self._log_file = log_file

    def do(self, job: str, connector: str, broker: Running, **more: Any) -> dict[str, float]:
        given = {"job": job, "format": connector, "bootstrap": broker.bootstrap, "options": {}, **more}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()
        result: dict[str, float] = json.loads(self.line())
        return result

    def line(self) -> str:
        """What it says next; one that says nothing for too long is ended."""
        assert self._process.stdout is not None
        timer = threading.Timer(DEADLINE_S, self._process.kill)
        timer.start()
        try:
            said = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not said:
            raise ClientFailed(f"the Spark process ended:\n{self._log_file.read_text()[-4000:]}")
        return said


@contextmanager
def spark_process(root: Path, cores: int) -> Iterator[Jobs]:
    connector = official_connector()
    log_file = root / f"spark-{cores}.log"
    command = [connector.python, "-m", "bench.spark_jobs", str(cores), str(log_file)]
    variables = {**os.environ, **connector.environment}
    with log_file.open("a") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=variables
        )
    with process:
        try:
            jobs = Jobs(process, log_file)
            jobs.line()
            yield jobs
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
        finally:
            process.kill()


def run(options: Options) -> list[Pair]:
    with (
        scratch(0 if options.small else NEEDED_BYTES) as root,
        SYSTEMS["barnabas"].start(root / "broker", {"log.segment.delete.delay.ms": "0"}) as broker,
    ):
        bench = Bench(options, broker)
        with spark_process(root, CORES) as jobs:
            pairs = [*bench.reads(jobs), *bench.writes(jobs), *bench.latencies(jobs), *bench.partitions(jobs)]
        if options.small:
            return pairs
        with spark_process(root, 1) as jobs:
            return [*pairs, *bench.one_core(jobs)]


class Bench:
    """What is measured."""

    def __init__(self, options: Options, broker: Running) -> None:
        self.options = options
        self.broker = broker
        self.rows = 1000 if options.small else 3_000_000

    def filled(self, partitions: int) -> str:
        topic = f"filled-{partitions}"
        create_topic(self.broker, topic, partitions)
        CLIENTS["confluent"].produce(self.broker, Load(topic, partitions, VALUE_BYTES, self.rows))
        return topic

    def in_turns(self, measure: Callable[[str], float]) -> dict[str, list[float]]:
        """One turn that does not count, for the JVM's compiler, then the rounds."""
        found: dict[str, list[float]] = {name: [] for name in self.options.systems}
        for number in range(1 if self.options.small else 1 + self.options.rounds):
            for name in self.options.systems:
                value = measure(name)
                if number or self.options.small:
                    found[name].append(value)
        return found

    def rate(self, jobs: Jobs, job: str, topic: str, connector: str, **more: Any) -> float:
        return self.rows / jobs.do(job, connector, self.broker, topic=topic, **more)["seconds"]

    def compared(
        self, title: str, measure: Callable[[str], float], target: Target | None, unit: str
    ) -> Iterator[Pair]:
        if self.options.match in title:
            announce(title)
            yield pair(title, unit, self.in_turns(measure), target)

    def reads(self, jobs: Jobs) -> Iterator[Pair]:
        topic = self.filled(1)
        for name in self.options.systems:
            rows = jobs.do("count", name, self.broker, topic=topic)["rows"]
            if rows != self.rows:
                raise ClientFailed(f"{name} read {rows} rows of {self.rows}")
        rate = partial(self.rate, jobs)
        yield from self.compared(
            "batch read, 1 partition", partial(rate, "read", topic), at_least(4), "rows/s"
        )
        only = {"barnabas": {"columns": "value"}}
        yield from self.compared(
            "batch read, 1 partition, only value",
            lambda name: rate("read", topic, name, options=only.get(name, {})),
            None,
            "rows/s",
        )
        stream = partial(rate, "available-now", topic)
        yield from self.compared("AvailableNow, 1 partition", stream, at_least(2.5), "rows/s")
        limited = partial(stream, options={"maxOffsetsPerTrigger": str(max(1, self.rows // 6))})
        yield from self.compared("AvailableNow in 6 batches", limited, None, "rows/s")
        to_files = partial(stream, sink="parquet")
        yield from self.compared("stream to Parquet, 1 partition", to_files, None, "rows/s")

    def writes(self, jobs: Jobs) -> Iterator[Pair]:
        for guarantee, options, bound in (
            ("at least once", AT_LEAST_ONCE, 1.5),
            ("exactly once", EXACTLY_ONCE, 1.2),
        ):
            title = f"write, 1 partition, {guarantee}"
            ours = partial(self.written, jobs, options)
            yield from self.compared(title, ours, at_least(bound), "rows/s")

    def written(self, jobs: Jobs, guarantee: Mapping[str, str], connector: str) -> float:
        topic = f"written-{next(NAMES)}"
        create_topic(self.broker, topic, 1)
        given = {"rows": self.rows, "value_bytes": VALUE_BYTES, "tasks": CORES}
        options = dict(guarantee) if connector == "barnabas" else {}
        rate = self.rate(jobs, "write", topic, connector, **given, options=options)
        delete_topics(self.broker, [topic])
        return rate

    def latencies(self, jobs: Jobs) -> Iterator[Pair]:
        for guarantee, options in (("at least once", AT_LEAST_ONCE), ("exactly once", EXACTLY_ONCE)):
            title = f"micro-batch, topic to topic, {guarantee}"
            measure = partial(self.latency, jobs, options)
            yield from self.compared(title, measure, at_most(1.0), "ms, p50")

    def latency(self, jobs: Jobs, guarantee: Mapping[str, str], connector: str) -> float:
        number = next(NAMES)
        source, to = f"slow-{number}", f"slow-{number}-out"
        create_topic(self.broker, source, 1)
        create_topic(self.broker, to, 1)
        options = dict(guarantee) if connector == "barnabas" else {}
        records = 5 if self.options.small else 30
        given = {"topic": source, "to": to, "records": records, "sink_options": options}
        return jobs.do("latency", connector, self.broker, **given)["milliseconds"]

    def partitions(self, jobs: Jobs) -> Iterator[Pair]:
        for partitions in (2, 4):
            measure = partial(self.rate, jobs, "read", self.filled(partitions))
            yield from self.compared(f"batch read, {partitions} partitions", measure, None, "rows/s")

    def one_core(self, jobs: Jobs) -> Iterator[Pair]:
        measure = partial(self.rate, jobs, "read", "filled-4")
        yield from self.compared("batch read, 4 partitions, Spark on one core", measure, None, "rows/s")
