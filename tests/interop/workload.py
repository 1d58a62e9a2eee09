"""Directories that Apache Kafka itself wrote, and what it served from them.

`make` runs java/Workload.java through one life of a node and keeps three copies of its data directory:

    clean/data       stopped cleanly, in its second leader epoch, with a transaction left open
    killed/data      the same after another start and more writes, then kill -9: checkpoints are behind,
                     indexes preallocated and not trimmed
    recovered/data   the killed one after Kafka itself recovered it and stopped cleanly

and beside them `contents.json`: all that Kafka answered before the copy was taken (records, look-ups by
timestamp and by leader epoch, offsets), which is what the tests hold Barnabas to.
"""

from __future__ import annotations

import functools
import json
import shutil
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.apache_kafka import LEAN_JVM, ApacheKafka, KafkaFailed, call, tool

WORKLOAD = Path(__file__).resolve().parent / "java" / "Workload.java"
OFFSET_FOR_LEADER_EPOCH = 23
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # small enough to unpack quickly; the topic `epochs` keeps Kafka's own default
    "log.index.size.max.bytes": "131072",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.backoff.ms": "50",
    # after kill -9 a node waits for its own old session to end
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    # an old transaction that is still open stays so
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    # no retention or checkpoint in the background: what is on disk depends on the workload alone
    "log.initial.task.delay.ms": "3600000",
}


@dataclass(frozen=True)
class KafkaDirectory:
    """One of the copies: a data directory and what Kafka served from it."""

    path: Path

    @property
    def data(self) -> Path:
        return self.path / "data"

    @functools.cached_property
    def contents(self) -> dict[str, Any]:
        contents: dict[str, Any] = json.loads((self.path / "contents.json").read_text())
        return contents

    @property
    def topics(self) -> dict[str, dict[str, Any]]:
        topics: dict[str, dict[str, Any]] = self.contents["topics"]
        return topics

    @property
    def now_ms(self) -> int:
        """When it was made: the time a test's clock should show."""
        now: int = self.contents["now_ms"]
        return now

    def copy(self, to: Path) -> Path:
        """A data directory to write to."""
        return Path(shutil.copytree(self.data, to))


@dataclass(frozen=True)
class KafkaDirectories:
    clean: KafkaDirectory
    killed: KafkaDirectory
    recovered: KafkaDirectory

    @classmethod
    def at(cls, root: Path) -> KafkaDirectories:
        return cls(*(KafkaDirectory(root / name) for name in ("clean", "killed", "recovered")))


def make(root: Path) -> None:
    """Run the workload, with the node's home under `root`; about half a minute."""
    made = KafkaDirectories.at(root)
    kafka = ApacheKafka(root / "node", settings=SETTINGS)
    base_time_ms = str((int(time.time()) // 60 - 60) * 60_000)
    with kafka:
        tool(WORKLOAD, "first", kafka.bootstrap, base_time_ms, jvm=LEAN_JVM)
    with kafka:
        tool(WORKLOAD, "second", kafka.bootstrap, base_time_ms, jvm=LEAN_JVM)
        wait_until(lambda: is_cleaned(kafka.data), "the cleaner to pass over `compacted`")
        describe(kafka, made.clean.path)
    shutil.copytree(kafka.data, made.clean.data)
    with kafka:
        tool(WORKLOAD, "third", kafka.bootstrap, base_time_ms, jvm=LEAN_JVM)
        describe(kafka, made.killed.path)
        kafka.kill()
    shutil.copytree(kafka.data, made.killed.data)
    with kafka:
        describe(kafka, made.recovered.path)
    shutil.copytree(kafka.data, made.recovered.data)


def is_cleaned(data: Path) -> bool:
    """Whether all but the active segment of `compacted` is clean."""
    active = int(max((data / "compacted-0").glob("*.log")).stem)
    checkpoint = data / "cleaner-offset-checkpoint"
    return checkpoint.exists() and f"compacted 0 {active}\n" in checkpoint.read_text()


def describe(kafka: ApacheKafka, to: Path) -> KafkaDirectory:
    """Ask a running Kafka for all that the tests compare, and write it down."""
    to.mkdir(parents=True, exist_ok=True)
    file = to / "contents.json"
    tool(WORKLOAD, "describe", kafka.bootstrap, file, jvm=LEAN_JVM)
    contents = json.loads(file.read_text())
    contents["now_ms"] = int(time.time() * 1000)
    for topic, described in contents["topics"].items():
        described["epochs"] = [[epoch, *epoch_end(kafka, topic, epoch)] for epoch in range(10)]
    file.write_text(json.dumps(contents))
    return KafkaDirectory(to)


def epoch_end(kafka: ApacheKafka, topic: str, epoch: int) -> tuple[int, int]:
    """The largest epoch up to `epoch` that partition 0 knows, and where it ends (-1, -1: unknown)."""
    name = topic.encode()
    asked = struct.pack(f">iih{len(name)}siiii", -1, 1, len(name), name, 1, 0, -1, epoch)
    response = call(kafka.port, OFFSET_FOR_LEADER_EPOCH, 3, asked)
    at = 4 + 4 + 2 + len(name) + 4
    error, _, answered, end = struct.unpack_from(">hiiq", response, at)
    if error:
        raise KafkaFailed(f"OffsetForLeaderEpoch of {topic}: error {error}")
    return answered, end


def wait_until(holds: Callable[[], bool], what: str, *, deadline_s: float = 30.0) -> None:
    deadline = time.monotonic() + deadline_s
    while not holds():
        if time.monotonic() > deadline:
            raise KafkaFailed(f"waited {deadline_s:.0f} s for {what}")
        time.sleep(0.02)
