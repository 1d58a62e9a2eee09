"""kill -9 in the middle of load, again and again; afterwards nothing that was acknowledged may be missing.

    python -m tests.broker.kill --rounds 100 [--seed 1]

A `barnabas serve` on a directory, and producers of four kinds (acks 1 and all; plain, idempotent) that never
stop sending. Every round the process is killed at a moment the seed chooses, sometimes once more while it is
starting, and what is in the log is read: offsets without gaps, each with the bytes that were read there
before, each acknowledged record where its acknowledgement said; records of idempotent producers once, and in
order. Meanwhile topics come and go (churn.py). At the end everything is read once more from the beginning.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.churn import Churn
from tests.support.apache_kafka import free_ports
from tests.support.serve_process import ServeProcess, acknowledge_one

PARTITIONS = 2
TICK_S = 0.01
RECORDS_A_TICK = 10
OVERLAP = 2000  # how far back a round reads again what was read before
SETTINGS = ("log.segment.bytes=1048576", "log.index.interval.bytes=1024")

KINDS: dict[str, dict[str, str | int | bool]] = {
    "acks-1": {"acks": "1"},
    "acks-all": {"acks": "all"},
    "acks-all-lz4": {"acks": "all", "compression.type": "lz4", "linger.ms": 20},
    "idempotent": {"enable.idempotence": True},
    "idempotent-batched": {"enable.idempotence": True, "linger.ms": 20, "compression.type": "zstd"},
}


class Load:
    """Producers that go on whatever happens, and what they were told."""

    def __init__(self, bootstrap: str, random: Random) -> None:
        self.acknowledged: dict[tuple[str, int], dict[int, bytes]] = {
            (kind, partition): {} for kind in KINDS for partition in range(PARTITIONS)
        }
        self.problems: list[str] = []
        self.failed = 0
        self._random = random
        self._numbers = dict.fromkeys(self.acknowledged, 0)
        self._producers = {kind: self._producer(bootstrap, settings) for kind, settings in KINDS.items()}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _producer(self, bootstrap: str, settings: dict[str, str | int | bool]) -> Producer:
        return Producer(
            {
                "bootstrap.servers": bootstrap,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "delivery.timeout.ms": 120_000,
                "linger.ms": 1,
                "error_cb": self._error,
                "log_level": 0,
                **settings,
            }
        )

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.problems.append(f"a producer cannot go on: {error}")

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(TICK_S):
            for kind, producer in self._producers.items():
                for _ in range(RECORDS_A_TICK):
                    self._send(kind, producer)
                producer.poll(0)

    def _send(self, kind: str, producer: Producer) -> None:
        partition = self._random.randrange(PARTITIONS)
        number = self._numbers[kind, partition]
        value = b"%08d " % number + self._random.randbytes(self._random.choice((10, 100, 1000)))

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed += 1
                return
            known = self.acknowledged[kind, partition]
            offset = message.offset()
            assert offset is not None
            if known.setdefault(offset, value) != value:
                self.problems.append(f"{kind}-{partition}: offset {offset} was acknowledged for two records")

        try:
            producer.produce(kind, value, partition=partition, on_delivery=delivered)
        except BufferError:
            return  # it has been away for too long: not this record, then
        self._numbers[kind, partition] = number + 1

    def finish(self) -> None:
        """Stop sending, and wait for what was sent."""
        self._stop.set()
        self._thread.join()
        for kind, producer in self._producers.items():
            left = producer.flush(60)
            if left:
                self.problems.append(f"{kind}: {left} records were never answered")


class Reader:
    """What is in the log, as far as it was read: it must never change."""

    def __init__(self, bootstrap: str, load: Load) -> None:
        self._bootstrap, self._load = bootstrap, load
        self._seen: dict[tuple[str, int], list[bytes]] = {key: [] for key in load.acknowledged}
        self._checked: dict[tuple[str, int], int] = dict.fromkeys(load.acknowledged, 0)
        self.duplicates = 0

    def check(self, *, everything: bool = False) -> list[str]:
        """Read on, and compare; what is wrong."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "kill",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        # before anything is read, or it could be ahead of what is
        acknowledged = {key: dict(known) for key, known in self._load.acknowledged.items()}
        try:
            problems = self._read(consumer, 0 if everything else OVERLAP)
        finally:
            consumer.close()
        for key in self._seen:
            problems += self._compare(key, acknowledged[key])
        return [*problems, *self._load.problems]

    def _read(self, consumer: Consumer, overlap: int) -> list[str]:
        """All partitions to their present ends, from `overlap` records before what is known (0: from 0)."""
        positions, ends = dict[tuple[str, int], int](), dict[tuple[str, int], int]()
        for key, seen in self._seen.items():
            low, high = consumer.get_watermark_offsets(TopicPartition(*key), timeout=60)
            if low != 0 or high < len(seen):
                return [f"{key}: {low} to {high}, where {len(seen)} records were read before"]
            positions[key], ends[key] = max(0, len(seen) - overlap) if overlap else 0, high
        consumer.assign([TopicPartition(*key, offset) for key, offset in positions.items()])
        deadline = time.monotonic() + 60
        while any(position < ends[key] for key, position in positions.items()):
            if time.monotonic() > deadline:
                return [f"cannot be read further than {positions}, of {ends}"]
            for message in consumer.consume(500, timeout=0.05):
                if message.error() is None and (problem := self._take(message, positions)):
                    return [problem]
        return []

    def _take(self, message: Message, positions: dict[tuple[str, int], int]) -> str | None:
        key, offset, value = (message.topic(), message.partition()), message.offset(), message.value()
        seen, position = self._seen[key], positions[key]
        if offset != position:
            return f"{key}: offset {offset} follows {position - 1}"
        if position == len(seen):
            seen.append(value)
        elif seen[position] != value:
            return f"{key}: offset {offset} has other bytes than before"
        positions[key] = position + 1
        return None

    def _compare(self, key: tuple[str, int], acknowledged: dict[int, bytes]) -> list[str]:
        kind, partition = key
        seen = self._seen[key]
        lost = [at for at, value in acknowledged.items() if at >= len(seen) or seen[at] != value]
        problems = [f"{kind}-{partition}: acknowledged and not there: offsets {lost[:5]}"] if lost else []
        checked, self._checked[key] = self._checked[key], len(seen)
        numbers = [int(value[:8]) for value in seen[max(checked - 1, 0) :]]
        if kind.startswith("idempotent"):
            wrong = [pair for pair in pairwise(numbers) if pair[1] != pair[0] + 1]
            if wrong or (checked == 0 and numbers[:1] not in ([], [0])):
                problems.append(f"{kind}-{partition}: not once and in order: {wrong[:5]}")
        else:
            self.duplicates += len(numbers) - len(set(numbers))
        return problems


class Outcome(NamedTuple):
    """What many rounds came to."""

    rounds: int
    kills: int
    acknowledged: int
    failed: int
    duplicates: int
    changes: int  # topics made, written to and deleted
    answered_ms: list[float]  # from the start of the process to the first answer
    produced_ms: list[float]  # and to the first acknowledged record
    seconds: float

    def __str__(self) -> str:
        def told(name: str, times: list[float]) -> str:
            middle, worst = statistics.median(times), max(times)
            return f"  {name}: median {middle:.0f} ms, at most {worst:.0f} ms"

        return "\n".join(
            [
                f"{self.rounds} rounds, {self.kills} times killed, {self.seconds:.0f} s: nothing was lost",
                f"  {self.acknowledged:,} records acknowledged, {self.failed} failed, "
                f"{self.duplicates} sent twice by producers without idempotence; "
                f"{self.changes:,} times a topic was made, written to or deleted",
                told("from start to the first answer", self.answered_ms),
                told("from start to the first acknowledged record", self.produced_ms),
            ]
        )


def run(seed: int, rounds: int, directory: Path) -> Outcome:
    """So many rounds; AssertionError, with what is wrong, after the first that shows anything."""
    random, began = Random(seed), time.monotonic()
    (port,) = free_ports(1)
    bootstrap = f"127.0.0.1:{port}"
    arguments = [argument for setting in SETTINGS for argument in ("--set", setting)]
    listeners = f"listeners=PLAINTEXT://{bootstrap},CONTROLLER://127.0.0.1:0"
    with ServeProcess(directory, *arguments, "--set", listeners, listen=None) as serve:
        _create_topics(bootstrap)
        load = Load(bootstrap, Random(seed + 1))
        reader = Reader(bootstrap, load)
        churn = Churn(port, Random(seed + 2))
        load.start()
        churn.start()
        answered_ms, produced_ms, kills = list[float](), list[float](), 0
        for number in range(rounds):
            time.sleep(random.uniform(0.05, 0.8))
            kills += _kill(serve, random)
            first_answer, first_record = _restart(serve, port)
            answered_ms.append(first_answer)
            produced_ms.append(first_record)
            problems = [*reader.check(), *churn.check()]
            assert not problems, f"round {number} of seed {seed}: {problems}\n{serve.log()[-3000:]}"
        load.finish()
        churn.finish()
        problems = [*reader.check(everything=True), *churn.check()]
        assert not problems, f"at the end of seed {seed}: {problems}"
        assert serve.stop() == 0
    acknowledged = sum(len(known) for known in load.acknowledged.values())
    return Outcome(
        rounds,
        kills,
        acknowledged,
        load.failed,
        reader.duplicates,
        churn.changes,
        answered_ms,
        produced_ms,
        time.monotonic() - began,
    )


def _create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(kind, PARTITIONS, 1) for kind in KINDS]).values():
        future.result(20)


def _kill(serve: ServeProcess, random: Random) -> int:
    serve.kill()
    kills = 1
    while random.random() < 0.2:  # and again, while it is starting
        serve.spawn()
        time.sleep(random.uniform(0, 0.4))
        serve.kill()
        kills += 1
    return kills


def _restart(serve: ServeProcess, port: int) -> tuple[float, float]:
    """Start it again; the milliseconds to the first answer and to the first acknowledged record."""
    began = time.monotonic()
    serve.spawn()
    serve.wait_until_answered(port)
    answered = time.monotonic()
    acknowledge_one(port)
    return (answered - began) * 1000, (time.monotonic() - began) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.kill", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="barnabas-kill-"))
    print(
        run(options.seed, options.rounds, home / "data")
    )  # after a failure the directory is left to be seen
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
