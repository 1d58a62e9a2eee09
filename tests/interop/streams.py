"""A Kafka Streams application, exactly once, killed and restarted, on a broker that is killed as well.

    python -m tests.interop.streams --rounds 20 --seed 3 [--instances 2] [--target process|memory|kafka]

The application (java/WordCount.java) counts words: by a repartition topic, into a store with a changelog,
and each increment goes to the output. In every round some words are written, and after a number of outputs
something is killed with SIGKILL: the application, the broker, or both. One that loses its directory
as well has to restore its store, and is another producer, so that its transaction has to time out. At the end
what is committed must be, for each word, 1, 2, 3 ... up to how often it was written: nothing is lost, counted
twice, or shown although it was aborted. The seed decides about words, numbers and events.

Apache Kafka needs a timeout longer than it takes to start: 4.3.0 was seen to abort a transaction that had
timed out when its coordinator came back, and to write no markers, since the partitions had no leader yet.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import confluent_kafka

from tests.interop.reading import READERS, ends, read_pairs
from tests.support.clients import CLIENTS, Message, confluent_consumer, create_topic, until
from tests.support.java_clients import PROGRAMS, streams_jars, with_jars
from tests.support.targets import KINDS, Target, make_target

INPUT, OUTPUT, APPLICATION = "words", "counts", "counting"
PARTITIONS = 2
WORDS = [f"word-{number}" for number in range(11)]
PATIENCE_S = 120.0
SESSION_MS = 2_000
SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
EVENTS = ("application", "broker", "directory", "both")


class Instance:
    """One process of the application, started again and again in the same directory."""

    def __init__(
        self,
        bootstrap: str,
        home: Path,
        name: str,
        timeout_ms: int,
        *,
        source: str = INPUT,
        output: str = OUTPUT,
        session_ms: int = SESSION_MS,
    ) -> None:
        self._bootstrap, self._name = bootstrap, name
        self._topics, self._timeouts = (source, output), (str(timeout_ms), str(session_ms))
        self._state = home / f"state-{name}"
        self._log = home / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = [self._bootstrap, APPLICATION, *self._topics, str(self._state), self._name]
        arguments += self._timeouts
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*with_jars(streams_jars(), PROGRAMS / "WordCount.java"), *arguments], stdout=log, stderr=log
            )

    def kill(self) -> None:
        """SIGKILL; harmless when repeated."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def lose_its_directory(self) -> None:
        shutil.rmtree(self._state, ignore_errors=True)

    def check(self) -> None:
        """Fail where it ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            said = self._log.read_text(errors="replace")[-4000:]
            raise AssertionError(f"{self._name} ended with {self._process.returncode}:\n{said}")


class Outputs:
    """Counts what comes out, committed or not."""

    def __init__(self, bootstrap: str) -> None:
        self._made = confluent_consumer(bootstrap, **{"isolation.level": "read_uncommitted", "log_level": 0})
        self._consumer = self._made.__enter__()
        self._consumer.assign(
            [confluent_kafka.TopicPartition(OUTPUT, number, 0) for number in range(PARTITIONS)]
        )

    def wait(self, count: int, instances: Sequence[Instance]) -> None:
        """Until so many more have come out."""
        deadline = time.monotonic() + PATIENCE_S
        while count > 0:
            assert time.monotonic() < deadline, f"{count} outputs are missing after {PATIENCE_S:.0f} s"
            for message in self._consumer.consume(count, 0.2):
                count -= message.error() is None
            for instance in instances:
                instance.check()

    def __enter__(self) -> Outputs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()


class Life:
    """The application, its broker, and what was written for it."""

    def __init__(
        self, target: Target, home: Path, *, instances: int = 1, seed: int = 1, timeout_ms: int = 5_000
    ) -> None:
        self._target = target
        self._random = random.Random(seed)
        self._written: list[str] = []
        self._instances = [
            Instance(target.bootstrap, home, f"instance-{number}", timeout_ms) for number in range(instances)
        ]

    def run(self, events: Sequence[str], words: int) -> None:
        """Write so many words a round, and let something happen in each."""
        bootstrap = self._target.bootstrap
        create_topic(bootstrap, INPUT, PARTITIONS)
        create_topic(bootstrap, OUTPUT, PARTITIONS)
        try:
            with Outputs(bootstrap) as outputs:
                self._write(words)
                for instance in self._instances:
                    instance.start()
                for event in events:
                    outputs.wait(self._random.randrange(1, words), self._instances)
                    print(f"{len(self._written)} words written: {event} is killed", flush=True)
                    self._happen(event)
                    self._write(words)
                self._wait_for_the_end()
        finally:
            for instance in self._instances:
                instance.kill()

    def _write(self, count: int) -> None:
        words = self._random.choices(WORDS, k=count)
        messages = [Message(word.encode(), partition=self._random.randrange(PARTITIONS)) for word in words]
        CLIENTS[0].produce(self._target.bootstrap, INPUT, messages, idempotent=True)
        self._written += words

    def _happen(self, event: str) -> None:
        instance = self._random.choice(self._instances)
        if event != "broker":
            instance.kill()
        if event in ("broker", "both"):
            self._target.kill()
            self._target.start()
        if event == "directory":
            instance.lose_its_directory()
        if event != "broker":
            instance.start()

    def _wait_for_the_end(self) -> None:
        def is_done() -> bool:
            for instance in self._instances:
                instance.check()
            return sum(len(pairs) for pairs in self._committed(READERS[0])) >= len(self._written)

        until(is_done, "end of the counting", PATIENCE_S)

    def _committed(self, reader: str) -> list[list[tuple[bytes | None, bytes | None]]]:
        return [
            read_pairs(reader, self._target.bootstrap, OUTPUT, number, committed=True)
            for number in range(PARTITIONS)
        ]

    def check(self) -> None:
        """Each word was counted exactly as often as it was written, one by one."""
        expected = {word: list(range(1, count + 1)) for word, count in Counter(self._written).items()}
        for reader in READERS:
            found: dict[str, list[int]] = {}
            for pairs in self._committed(reader):
                for key, value in pairs:
                    assert key is not None
                    assert value is not None
                    found.setdefault(key.decode(), []).append(int(value))
            assert found == expected, f"to {reader}"
        for number in range(PARTITIONS):
            stable, high = ends(self._target.bootstrap, OUTPUT, number)
            assert stable == high, "a transaction is open for ever"


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Kafka Streams, exactly once, through kills")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--words", type=int, default=400, help="written in a round")
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=KINDS, default="process")
    given = parser.parse_args(argv)
    events = random.Random(given.seed).choices(EVENTS, k=given.rounds)
    with tempfile.TemporaryDirectory() as folder:
        target = make_target(given.target, Path(folder, "broker"), SETTINGS)
        target.start()
        try:
            timeout_ms = 60_000 if given.target == "kafka" else 5_000
            life = Life(
                target, Path(folder), instances=given.instances, seed=given.seed, timeout_ms=timeout_ms
            )
            life.run(events, given.words)
            life.check()
        finally:
            target.stop()
    print(f"{given.rounds} kills, {(given.rounds + 1) * given.words} words: each counted once")


if __name__ == "__main__":
    main(sys.argv[1:])
