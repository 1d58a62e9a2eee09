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
    asleep          the driver, with all its processes, stops (SIGSTOP) and is killed when another one has
                    taken over, and it was woken beside that

A query that has died is started again, with another number of tasks. When all that was fed is through, a
reader of committed records that is not ours must find each number once, those of a key in order; no
transaction is open, and the group that mirrors the query's offsets has no lag. After a failure the directory
is kept: checkpoint, data, logs, and `kills.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.spark.kills_judge import Checkpoint, judge
from tests.spark.kills_moments import Moments
from tests.spark.kills_outcome import (
    Outcome,
    copies_of,
    count_written,
    failures_of,
    lag_of,
    name_of,
    numbers_fed,
    unexpected,
)
from tests.spark.kills_query import INPUT, OUTPUT, SINKS
from tests.spark.kills_world import IN_PARTITIONS, OUT_PARTITIONS, WORDS, Feeder, Query, served
from tests.support.clients import create_topic
from tests.support.marked_processes import Victim
from tests.support.serve_process import ServeProcess

# what is killed, and how often of a hundred times
WEIGHTS = {
    "task": 24,
    "tasks": 4,
    "committer": 13,
    "reader": 3,
    "executor": 13,
    "jvm": 6,
    "driver": 10,
    "broker": 17,
    "both": 5,
    "asleep": 5,
}


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
        if kind == "asleep":
            return self._put_to_sleep()
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

    def _put_to_sleep(self) -> int:
        self._query.fall_asleep()
        for _ in range(self._random.randint(1, 2)):  # batches of the other one
            self._moments.wait("within", self._random)
        self._query.wake()
        time.sleep(self._random.uniform(0.5, 4))
        self._query.kill_sleeper()
        return 1


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
    with served(directory) as (serve, bootstrap):
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
            left_open, lag = moments.open_transactions(), lag_of(bootstrap)
        finally:
            query.kill()
            moments.close()
        fed = numbers_fed(bootstrap, feeder.fed)
        problems = judge(fed, copies_of(bootstrap, directory, sink), checkpoint)
        problems += [f"open transactions: {left_open}"] if left_open else []
        excused = ("AlreadyFurther",) if killer.kills["asleep"] else ()  # one that wakes may say so
        problems += [*lag, *unexpected(directory, excused)]
        assert not problems, f"after {killer.kills.total()} kills of seed {seed}: {problems}"
        aborted = count_written(bootstrap) - len(fed) if sink == "topic" else 0
    failures = Counter(map(name_of, failures_of(directory)))
    batches, seconds = checkpoint.committed() + 1, time.monotonic() - began
    return Outcome(killer.kills, killer.moments, query.lives, batches, len(fed), aborted, failures, seconds)


def random_kinds(random: Random, only: Sequence[str] = tuple(WEIGHTS)) -> Iterator[str]:
    """One after another, for ever."""
    weights = [WEIGHTS[name] for name in only]
    while True:
        yield from random.choices(only, weights)


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
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave nobody behind
    home = Path(tempfile.mkdtemp(prefix="barnabas-kills-"))
    print(f"in {home}", flush=True)
    kinds = random_kinds(Random(options.seed), options.only.split(","))
    settings = {"sink": options.sink, "executors": options.executors}
    print(run(options.seed, options.kills, kinds, home, **settings))
    if not options.keep:  # as after a failure
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
