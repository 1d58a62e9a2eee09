"""Nodes are killed, paused and cut off, also several at a time, while producers write to a replicated topic.

    python -m tests.broker.kill_replicas [--minutes 30] [--seed 1] [--system barnabas|kafka|both]
                                         [--kafka-minutes N]

Three nodes, broker and controller each, default settings; a topic of six partitions with three replicas and
min.insync.replicas=2; a producer of confluent-kafka and one of Java's, acks=all and idempotent, which never
stop. Each round is a fault (replica_faults.py): one of a role, measured, in turn with several at a time and
clean restarts. Nothing acknowledged may be missing, twice or out of order, what a consumer has read stays,
and in the end all replicas are equal (replica_history.py).

For Apache Kafka there are only the faults that are measured, and what is wrong is printed, not judged: its
brokers and librdkafka together write some records twice (github.com/confluentinc/librdkafka/issues/4953).

Nodes are cut off where this machine has network namespaces (Linux, root and iproute2); otherwise those faults
are left out. A violation prints the seed, whose order of faults is the same in every run.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.broker.replica_faults import (
    BOTH,
    BROKER,
    CONTROLLER,
    ISOLATE,
    KILL,
    PAUSE,
    STOP,
    Faults,
    Measured,
)
from tests.broker.replica_history import Reader
from tests.support import apache_kafka, node_networks
from tests.support.combined_cluster import BARNABAS, DEADLINE_S, KAFKA, CombinedCluster
from tests.support.node_networks import Namespaces
from tests.support.numbered_writers import CONFLUENT, JAVA, NumberedWriter
from tests.support.raw_client import wait_until
from tests.support.replicated_topic import ReplicatedTopic

TOPIC, PARTITIONS, NODES = "written", 6, 3
CHECK_EVERY = 5  # rounds
LONGEST_S = 4.0  # of one of several faults
TICK_MS = 20  # between the records that a producer sends to a partition


class Planned(NamedTuple):
    """A round: one fault of a role, or several at a time, or a clean restart."""

    kinds: tuple[str, ...]
    role: str = ""

    def __str__(self) -> str:
        return f"{' and '.join(self.kinds)} {self.role or 'of any node'}"


MEASURED = (
    *(Planned((KILL,), role) for role in (BROKER, CONTROLLER, BOTH) * 2),
    *(Planned((kind,), role) for kind in (PAUSE, ISOLATE) for role in (BROKER, BOTH)),
)
OTHERS = (
    Planned((KILL, KILL)),
    Planned((KILL, PAUSE)),
    Planned((KILL, ISOLATE)),
    Planned((PAUSE, ISOLATE)),
    Planned((KILL, KILL, KILL)),
    Planned((STOP,)),
)


class Outcome(NamedTuple):
    """What a run came to; only with Apache Kafka there may be `problems`."""

    rounds: int
    faults: int
    acknowledged: dict[str, int]
    records: int
    problems: list[str]
    measured: dict[Planned, list[Measured]]
    seconds: float


def deck(random: Random, system: str, kinds: Sequence[str]) -> Iterator[Planned]:
    """Rounds without end, of the kinds that this machine can do: each once before any comes again."""
    possible = {*kinds, STOP}
    planned = MEASURED if system == KAFKA else MEASURED + OTHERS
    here = [each for each in planned if possible.issuperset(each.kinds)]
    while True:
        yield from random.sample(here, len(here))


class Run:
    """A cluster, its writers and its reader, and what is done to them."""

    def __init__(
        self,
        root: Path,
        seed: int,
        stack: ExitStack,
        *,
        clients: Sequence[str],
        longest_s: float,
        system: str = BARNABAS,
        tick_ms: int = TICK_MS,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.is_judged = system == BARNABAS
        self.random = Random(seed)
        network = None
        if node_networks.missing() is None:
            network = stack.enter_context(Namespaces(range(1, NODES + 1)))
        self.cluster = stack.enter_context(
            CombinedCluster(system, root, nodes=NODES, network=network, settings=settings)
        )
        self.topic = ReplicatedTopic(self.cluster, TOPIC, PARTITIONS)
        self.topic.create(min_insync_replicas="2")
        self.writers = [
            stack.enter_context(
                NumberedWriter(each, self.cluster.bootstrap, TOPIC, PARTITIONS, root, tick_ms)
            )
            for each in clients
        ]
        wait_until(lambda: all(each.answers for each in self.writers), "first answers", DEADLINE_S)
        self.reader = stack.enter_context(Reader(self.topic, self.writers))
        self.faults = Faults(self.cluster, self.topic, self.writers, self.random, longest_s)
        self.problems: list[str] = []
        self.measured: dict[Planned, list[Measured]] = {}
        self._began = time.monotonic()

    def do(self, planned: Planned) -> None:
        """A round."""
        if planned.role:
            found = self.faults.one(planned.role, planned.kinds[0])
            self.measured.setdefault(planned, []).append(found)
        elif planned.kinds == (STOP,):
            self.faults.restart()
        else:
            self.faults.several(planned.kinds)

    def check(self) -> None:
        """AssertionError where anything is wrong by now."""
        errors = [f"{each.name}: {error}" for each in self.writers for error in each.errors[:3]]
        self._judge([*self.reader.check(), *errors])

    def _judge(self, problems: list[str]) -> None:
        self.problems = problems
        assert not (problems and self.is_judged), "\n".join(problems)

    def finish(self, rounds: int, faults: int) -> Outcome:
        for each in self.writers:
            each.finish()
        self.check()
        self.topic.wait_until_whole()
        self._judge([*self.problems, *self.reader.check_at_end()])
        return Outcome(
            rounds,
            faults,
            {each.name: len(each.answers) for each in self.writers},
            self.reader.records,
            self.problems,
            self.measured,
            time.monotonic() - self._began,
        )


def run(
    root: Path,
    seed: int,
    planned: Iterator[Planned] | Sequence[Planned] | None = None,
    *,
    minutes: float = 60.0,
    system: str = BARNABAS,
    clients: Sequence[str] = (CONFLUENT, JAVA),
    longest_s: float = LONGEST_S,
    told: bool = False,
) -> Outcome:
    """These rounds, or those of the seed for so long; AssertionError, with what is wrong, if anything is."""
    with ExitStack() as stack:
        this = Run(root, seed, stack, system=system, clients=clients, longest_s=longest_s)
        until = time.monotonic() + minutes * 60
        rounds = faults = 0
        for each in planned or deck(this.random, system, this.faults.kinds):
            if time.monotonic() > until:
                break
            if told:
                print(f"{system} round {rounds} of seed {seed}: {each}", flush=True)
            this.do(each)
            rounds, faults = rounds + 1, faults + len(each.kinds)
            if rounds % CHECK_EVERY == 0:
                this.check()
        return this.finish(rounds, faults)


def table(results: Mapping[str, Outcome]) -> str:
    """What was measured, the systems side by side: the median and the highest, in milliseconds."""
    lines = []
    for system, outcome in results.items():
        counts = ", ".join(f"{count:,} to {name}" for name, count in outcome.acknowledged.items())
        lines.append(
            f"{system}: {outcome.rounds} rounds, {outcome.faults} faults, {outcome.seconds:.0f} s; "
            f"acknowledged {counts}; {outcome.records:,} records: "
            + ("; ".join(outcome.problems[:5]) or "readable, once, in order, equal on all replicas")
        )
    lines.append(f"{'':48}" + "".join(f"{system:^30}" for system in results))
    lines.append(f"{'milliseconds':48}" + f"{'median':>10}{'at most':>10}{'times':>8}  " * len(results))
    for planned in dict.fromkeys(MEASURED):
        if not any(planned in each.measured for each in results.values()):
            continue
        for name, values in _rows(planned, results):
            lines.append(f"{planned!s:28}{name:20}" + "".join(map(_cell, values)).rstrip())
    return "\n".join(lines)


def _rows(planned: Planned, results: Mapping[str, Outcome]) -> Iterator[tuple[str, list[list[float]]]]:
    """Each measure of a fault, of the systems in turn."""
    found = [each.measured.get(planned, []) for each in results.values()]
    yield "replaced", [[each.published_ms for each in of_system] for of_system in found]
    for name in dict.fromkeys(name for outcome in results.values() for name in outcome.acknowledged):
        yield f"{name} goes on", [[each.acknowledged_ms[name] for each in of_system] for of_system in found]
    yield "whole again", [[each.whole_ms for each in of_system] for of_system in found]


def _cell(values: Sequence[float]) -> str:
    if not values:
        return f"{'-':>10}{'-':>10}{0:8}  "
    return f"{statistics.median(values):10,.0f}{max(values):10,.0f}{len(values):8}  "


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kafka-minutes", type=float, help="with --system both (default: as --minutes)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--system", choices=(BARNABAS, KAFKA, "both"), default=BARNABAS)
    return parser.parse_args()


def main() -> None:
    options = _arguments()
    systems = (BARNABAS, KAFKA) if options.system == "both" else (options.system,)
    lacks = apache_kafka.missing()
    if lacks is not None:
        sys.exit(f"cannot run here: {lacks}")
    apache_kafka.shared_classes()  # what it fetches is not to be had in a namespace
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that everything is removed
    results = {}
    for system in systems:
        minutes = options.kafka_minutes if system == KAFKA and options.kafka_minutes else options.minutes
        root = tempfile.mkdtemp(prefix=f"{system}-")
        print(f"logs and data are in {root}, which is kept after a failure", flush=True)
        results[system] = run(Path(root), options.seed, minutes=minutes, system=system, told=True)
        shutil.rmtree(root)
    print(table(results))


if __name__ == "__main__":
    main()
