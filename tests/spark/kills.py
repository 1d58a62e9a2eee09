"""Exactly once under SIGKILL: a query, its broker and its processes are killed again and again.

    python -m tests.spark.kills --kills 200 --seed 1 [--sink topic|delta] [--executors 0.3] [--keep]

`barnabas serve`, a feeder that writes numbers to a topic, and a query (kills_query) that copies them, each
copy with the place of its original. What is killed next and at which moment of a batch is the seed's choice:

    task, tasks     a Python process in which a task runs; the one that forks them, and so all
    committer       the Python process in which the driver's part of the sink runs
    reader          the one in which the driver's part of the source runs
    executor        a JVM in which tasks run, where the query has some of its own (local-cluster)
    jvm             the driver's JVM: its Python processes notice in time, and do what they do until then
    driver          all of the query's processes at once
    broker          and it is started again on the same directory, sometimes killed while it starts
    both            broker and driver

A query that has died is started again, with another number of tasks. When all that was fed is through, a
reader of committed records that is not ours must find each number once, those of a key in order; no
transaction is open, and the group that mirrors the query's offsets has no lag. After a failure the directory
is kept: checkpoint, data, logs, and `kills.jsonl`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from barnabas.client.admin import Admin
from barnabas.spark.driving import Background, seams
from barnabas.spark.home import quick_home
from tests.interop.reading import read_pairs
from tests.spark.kills_judge import Checkpoint, Copy, Place, copy_of, judge
from tests.spark.kills_query import GROUP_ID_PREFIX, INPUT, OUTPUT, SINKS
from tests.support.apache_kafka import free_ports
from tests.support.clients import create_topic
from tests.support.marked_processes import MARK, Process, Victim, family, kill_family
from tests.support.serve_process import ServeProcess

ROOT = Path(__file__).parents[2]
IN_PARTITIONS, OUT_PARTITIONS, KEYS = 4, 3, 12
AHEAD = 1200  # records that the feeder is ahead of the query, at most
LOCAL, CLUSTER = "local[2,8]", "local-cluster[2,1,1024]"
POLL_S = 0.002
STUCK_S = 300.0  # without a batch that begins, on however busy a machine
MIRRORED_S = 60.0
UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
# errors of a query that kills do not excuse
UNEXPECTED = ("AlreadyFurther", "SplitChanged", "DataLost", "BadMarkerTopic", "OptionError", "SettingError")

# what is killed, and how often of a hundred times
WEIGHTS = {
    "task": 26,
    "tasks": 4,
    "committer": 14,
    "reader": 4,
    "executor": 14,
    "jvm": 6,
    "driver": 10,
    "broker": 17,
    "both": 5,
}
WORDS = {  # by which a process is known: a word of its command
    "task": "pyspark.worker",
    "tasks": "pyspark.worker",
    "committer": "pyspark.sql.worker.python_streaming_sink_runner",
    "reader": "pyspark.sql.streaming.python_streaming_source_runner",
    "executor": "CoarseGrainedExecutorBackend",
    "jvm": "SparkSubmit",
}
FORKS = {"task": True, "tasks": False, "committer": True}  # or the one that has forked them
# moments at which something is killed, and how often; "within" is anywhere in a batch
MOMENTS = {"within": 8, "opened": 3, "all-open": 3, "ending": 3, "ended": 3, "any": 2}
OF_TASKS = ("within", "opened", "all-open")


class Query:
    """The process of the driver, and all that it starts."""

    def __init__(self, bootstrap: str, directory: Path, sink: str, random: Random, executors: float) -> None:
        self.lives = 0
        self._bootstrap, self._directory, self._sink = bootstrap, directory, sink
        self._random, self._executors = random, executors
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "tmp").mkdir()
        home = quick_home({"XDG_CACHE_HOME": str(directory)})  # executors write beside it
        self._environment = {
            **os.environ,
            MARK: str(directory),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",  # as it is there, whatever is installed
            "SPARK_LOCAL_IP": "127.0.0.1",
            **({} if home is None else {"SPARK_HOME": home}),
        }

    def ensure(self) -> None:
        """Start it if it does not run."""
        if self._process is None or self._process.poll() is not None:
            master = CLUSTER if self._random.random() < self._executors else LOCAL
            self._process = self._spawn(master)
            self.lives += 1

    def _spawn(self, master: str) -> subprocess.Popen[bytes]:
        tasks = str(self._random.randint(2, 4))
        arguments = (master, self._bootstrap, str(self._directory), self._sink, tasks)
        with (self._directory / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.kills_query", *arguments],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def processes(self, kind: str) -> list[Process]:
        """Those of a kind."""
        word = WORDS[kind]
        found = [each for each in family(str(self._directory)) if each.has(word)]
        pids = {each.pid for each in found}
        if kind in FORKS:
            return [each for each in found if (each.parent in pids) == FORKS[kind]]
        return found

    def kill(self) -> None:
        """All of it."""
        kill_family(str(self._directory))
        if self._process is not None:
            self._process.wait()
            self._process = None


class Feeder:
    """Writes numbers, a little ahead of the query; the numbers of a key go to one partition."""

    def __init__(self, bootstrap: str, checkpoint: Checkpoint) -> None:
        self.fed = 0
        self._checkpoint = checkpoint
        settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
        }
        self._producer = Producer({**settings, "reconnect.backoff.max.ms": 100})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            taken = sum(self._checkpoint.ends(self._checkpoint.begun()).values())
            while self.fed < taken + AHEAD:
                key = self.fed % KEYS
                self._producer.produce(INPUT, b"%d" % self.fed, b"%d" % key, key % IN_PARTITIONS)
                self.fed += 1
            self._producer.poll(0)

    def finish(self) -> None:
        """Stop, and wait for what was sent."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0, "input was never acknowledged"


class Moments:
    """Waits for a moment of a batch; what can be seen of one is the checkpoint and the transactions."""

    def __init__(self, bootstrap: str, query: Query, checkpoint: Checkpoint, sink: str) -> None:
        self._query, self._checkpoint = query, checkpoint
        self._background = Background("kills")
        self._admin = Admin(*seams(), bootstrap)
        self._waits: dict[str, Callable[[], None]] = {"any": self._query.ensure, "within": self._begun}
        if sink == "topic":
            self._waits |= {"opened": self._opened, "all-open": self._all_open}
            self._waits |= {"ending": self._ending, "ended": self._ended}

    def close(self) -> None:
        self._background.run(self._admin.close())
        self._background.close()

    def open_transactions(self) -> list[str]:
        """Those of the query that are not ended."""

        async def ask() -> list[str]:
            async with asyncio.timeout(30):
                listed = await self._admin.list_transactions(states=UNDER_WAY)
            return [each.transactional_id for each in listed if each.transactional_id.startswith("spark-")]

        return self._background.run(ask())

    def choose(self, kind: str, random: Random) -> str:
        """One that goes with what is to be killed."""
        names = [name for name in MOMENTS if name in self._waits]
        if kind in ("task", "tasks", "executor"):
            names = [name for name in names if name in OF_TASKS]
        (moment,) = random.choices(names, [MOMENTS[name] for name in names])
        return moment

    def wait(self, moment: str, random: Random) -> None:
        """Until it has come, or a little longer."""
        self._waits[moment]()
        if moment == "within":
            spread_s = self._checkpoint.last_batch_s()
        else:
            spread_s = 2.0 if moment == "any" else random.choice((0.0, 0.01, 0.1))
        time.sleep(random.uniform(0, spread_s))

    def wait_for_all(self, fed: int) -> None:
        """Until so many records are through."""

        def is_through() -> bool:
            batch = self._checkpoint.committed()
            return sum(self._checkpoint.ends(batch).values()) == fed

        self._until(is_through)

    def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STUCK_S
        while not done():
            assert time.monotonic() < deadline, (
                f"no batch after {self._checkpoint.begun()} in {STUCK_S:.0f} s"
            )
            self._query.ensure()
            time.sleep(POLL_S)

    def _begun(self) -> None:
        before = self._checkpoint.begun()
        self._until(lambda: self._checkpoint.begun() > before)

    def _until_open(self, count: int) -> None:
        """As many open at once, unless the batch is through without."""
        batch = self._checkpoint.begun()
        self._until(lambda: len(self.open_transactions()) >= count or self._checkpoint.committed() >= batch)

    def _opened(self) -> None:
        self._begun()
        self._until_open(1)

    def _all_open(self) -> None:
        self._begun()
        self._until_open(2)

    def _ending(self) -> None:
        """Some are ended, and some may not be."""
        self._all_open()
        most, batch = 0, self._checkpoint.begun()

        def fewer() -> bool:
            nonlocal most
            now = len(self.open_transactions())
            most = max(most, now)
            return now < most or self._checkpoint.committed() >= batch

        self._until(fewer)

    def _ended(self) -> None:
        """All is committed, and Spark may not know yet."""
        self._begun()
        batch = self._checkpoint.begun()
        self._until_open(1)
        self._until(lambda: not self.open_transactions() or self._checkpoint.committed() >= batch)


class Outcome(NamedTuple):
    """What many kills came to."""

    kills: Counter[str]
    moments: Counter[str]
    lives: int
    batches: int
    fed: int
    aborted: int  # copies that were written and never committed
    failures: Counter[str]  # of runs of the query that failed, by their error
    seconds: float

    def __str__(self) -> str:
        def told(counts: Counter[str]) -> str:
            return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"

        return "\n".join(
            [
                f"{self.kills.total()} kills in {self.seconds:.0f} s, {self.fed:,} records: "
                f"none lost, none twice, all in order",
                f"  killed: {told(self.kills)}",
                f"  when: {told(self.moments)}",
                f"  {self.batches} batches, {self.lives} lives of the driver, "
                f"{self.aborted:,} copies written and not committed",
                f"  runs that failed: {told(self.failures)}",
            ]
        )


class Killer:
    """Kills what the seed chooses, when it chooses."""

    def __init__(
        self, serve: ServeProcess, query: Query, moments: Moments, random: Random, log: Path
    ) -> None:
        self.kills: Counter[str] = Counter()
        self.moments: Counter[str] = Counter()
        self._serve, self._query, self._moments, self._random = serve, query, moments, random
        self._log = log

    def run(self, count: int, kinds: Iterable[str]) -> None:
        """So many; a kind of which there is none at the time is left out."""
        for kind in kinds:
            if self.kills.total() >= count:
                return
            moment = self._moments.choose(kind, self._random)
            self._query.ensure()
            if killed := self._kill_at(moment, kind):
                self.kills[kind] += killed
                self.moments[moment] += 1
                with self._log.open("a") as log:
                    log.write(json.dumps({"at": time.time(), "kind": kind, "moment": moment}) + "\n")

    def _kill_at(self, moment: str, kind: str) -> int:
        """How many there were to be killed."""
        if kind in WORDS:
            with suppress(ProcessLookupError), self._victim(kind) as victim:
                self._moments.wait(moment, self._random)
                return int(victim.kill())
            self._moments.wait("within", self._random)  # for one to be born
            return 0
        self._moments.wait(moment, self._random)
        if kind == "driver":
            self._query.kill()
            return 1
        return self._kill_broker(and_query=kind == "both")

    def _victim(self, kind: str) -> Victim:
        """One of the kind; ProcessLookupError where there is none."""
        found = self._query.processes(kind)
        if not found:
            raise ProcessLookupError(kind)
        return Victim(self._random.choice(found))

    def _kill_broker(self, *, and_query: bool) -> int:
        kills = 1
        self._serve.kill()
        if and_query:
            self._query.kill()
        while self._random.random() < 0.15:  # and again, while it is starting
            self._serve.spawn()
            time.sleep(self._random.uniform(0, 0.5))
            self._serve.kill()
            kills += 1
        time.sleep(self._random.choice((0.0, 0.0, 0.5)))
        self._serve.start()
        return kills


def run(
    seed: int,
    kills: int,
    kinds: Iterable[str],
    directory: Path,
    *,
    sink: str = "topic",
    executors: float = 0.0,
) -> Outcome:
    """So many kills of these kinds; AssertionError, with what is wrong, where the output is not the input."""
    random, began = Random(seed), time.monotonic()
    checkpoint = Checkpoint(directory / "checkpoint")
    with _served(directory) as (serve, bootstrap):
        create_topic(bootstrap, INPUT, IN_PARTITIONS)
        create_topic(bootstrap, OUTPUT, OUT_PARTITIONS)
        query = Query(bootstrap, directory, sink, Random(seed + 1), executors)
        moments = Moments(bootstrap, query, checkpoint, sink)
        killer = Killer(serve, query, moments, random, directory / "kills.jsonl")
        try:
            feeder = Feeder(bootstrap, checkpoint)
            killer.run(kills, kinds)
            feeder.finish()
            moments.wait_for_all(feeder.fed)
            left_open, lag = moments.open_transactions(), _lag(bootstrap)
        finally:
            query.kill()
            moments.close()
        fed = _fed(bootstrap, feeder.fed)
        problems = judge(fed, _copies(bootstrap, directory, sink), checkpoint)
        problems += [f"open transactions: {left_open}"] if left_open else []
        problems += [*lag, *_unexpected(directory)]
        assert not problems, f"after {killer.kills.total()} kills of seed {seed}: {problems}"
        aborted = _written(bootstrap) - len(fed) if sink == "topic" else 0
    failures = Counter(map(_name, _failures(directory)))
    batches, seconds = checkpoint.committed() + 1, time.monotonic() - began
    return Outcome(killer.kills, killer.moments, query.lives, batches, len(fed), aborted, failures, seconds)


def random_kinds(random: Random, only: Sequence[str] = tuple(WEIGHTS)) -> Iterator[str]:
    """One after another, for ever."""
    weights = [WEIGHTS[name] for name in only]
    while True:
        yield from random.choices(only, weights)


@contextmanager
def _served(directory: Path) -> Iterator[tuple[ServeProcess, str]]:
    (port,) = free_ports(1)
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
    with ServeProcess(directory / "data", "--set", listeners, listen=None) as serve:
        yield serve, f"127.0.0.1:{port}"


# ---- what came of it --------------------------------------------------------------------------------------


def _fed(bootstrap: str, count: int) -> dict[Place, int]:
    """The numbers in the input; each is there once, or the feeder is to blame."""
    found = {
        Place(partition, offset): int(value or b"")
        for partition in range(IN_PARTITIONS)
        for offset, (_, value) in enumerate(
            read_pairs("confluent", bootstrap, INPUT, partition, committed=True)
        )
    }
    assert sorted(found.values()) == list(range(count)), "the input is not what was fed"
    return found


def _copies(bootstrap: str, directory: Path, sink: str) -> list[list[Copy]]:
    if sink == "delta":
        from deltalake import DeltaTable

        rows = DeltaTable(directory / "table").to_pyarrow_table().to_pylist()
        copies = [copy_of(row["key"], row["value"].encode()) for row in rows]
        return [sorted(copies, key=lambda copy: copy.number)]  # a table has no order
    return [
        [copy_of(key or b"", value or b"") for key, value in pairs]
        for partition in range(OUT_PARTITIONS)
        for pairs in [read_pairs("confluent", bootstrap, OUTPUT, partition, committed=True)]
    ]


def _written(bootstrap: str) -> int:
    return sum(
        len(read_pairs("confluent", bootstrap, OUTPUT, partition, committed=False))
        for partition in range(OUT_PARTITIONS)
    )


def _lag(bootstrap: str) -> list[str]:
    """What the group that mirrors the query's offsets lacks; a little later it should not."""
    group, deadline = f"{GROUP_ID_PREFIX}-{INPUT}", time.monotonic() + MIRRORED_S
    ends = {
        partition: len(read_pairs("confluent", bootstrap, INPUT, partition, committed=True))
        for partition in range(IN_PARTITIONS)
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    while True:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        offsets = {each.partition: each.offset for each in asked[group].result(30).topic_partitions}
        if offsets == ends:
            return []
        if time.monotonic() > deadline:
            return [f"group {group} is at {offsets}, and the input ends at {ends}"]
        time.sleep(POLL_S)


def _failures(directory: Path) -> list[str]:
    file = directory / "failures.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    failures = []
    for line in lines:
        with suppress(json.JSONDecodeError):  # it was killed while it wrote
            failures.append(str(json.loads(line)["error"]))
    return failures


def _unexpected(directory: Path) -> list[str]:
    return [error for error in _failures(directory) if any(name in error for name in UNEXPECTED)]


def _name(error: str) -> str:
    """A failure in a few words: the last line of what is said of it that names an error."""
    said = error.partition("=== Streaming Query ===")[0].partition("terminated with exception:")[2]
    said = said.replace("SQLSTATE: XXKST", "").strip()
    lines = [line.strip() for line in said.splitlines() if "Error" in line or "Exception" in line]
    return (lines[-1] if lines else said or "a connection to a process that is gone")[:80]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kills", description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sink", choices=SINKS, default="topic")
    parser.add_argument("--executors", type=float, default=0.3, help="how often there are some, of 1")
    parser.add_argument("--only", default=",".join(WEIGHTS), help="kinds, as task,broker")
    parser.add_argument("--keep", action="store_true", help="keep the directory")
    options = parser.parse_args()
    logging.getLogger("barnabas").addHandler(logging.NullHandler())  # that a broker is away is no news
    home = Path(tempfile.mkdtemp(prefix="barnabas-kills-"))
    print(f"in {home}", flush=True)
    kinds = random_kinds(Random(options.seed), options.only.split(","))
    settings = {"sink": options.sink, "executors": options.executors}
    print(run(options.seed, options.kills, kinds, home, **settings))
    if not options.keep:  # as after a failure
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
