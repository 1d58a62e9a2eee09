"""Nodes are killed, paused and cut off while groups and transactions go on: their coordinators move.

    python -m tests.broker.kill_coordinators [--minutes 30] [--seed 1]
                    [--clients confluent,aiokafka,kafka-python,java-4.3.0,franz-go,streams,spark]

Three nodes as in kill_replicas.py, with the same kinds of faults, and an input topic that is written to
slowly all the time. Each client has a consumer group of two members, one of them static, of which one is
replaced in every round, and a transactional loop from the input to an output of its own. An application of
Kafka Streams (exactly_once_v2) and a query of Spark with the exactly-once sink copy the input as well, and
are killed now and then. After every round the groups must settle, loops and applications go on, and no commit
may have gone back; at the end every input has exactly one committed output in each of the outputs, and no
partition ever had two owners (coordinator_load.py).
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.broker import copying_applications
from tests.broker.coordinator_load import Counts, Load
from tests.broker.coordinator_outputs import output_of
from tests.broker.copying_applications import APPLICATIONS
from tests.broker.kill_replicas import LONGEST_S, PARTITIONS, Outcome, Planned, Run, deck, table
from tests.interop.numbered_writer import value
from tests.support import apache_kafka, transactors
from tests.support.combined_cluster import BARNABAS
from tests.support.group_members import NEW_JAVA, command, is_here
from tests.support.numbered_writers import CONFLUENT
from tests.support.replicated_topic import ReplicatedTopic

CLIENTS = (CONFLUENT, "aiokafka", "kafka-python", NEW_JAVA, "franz-go", *APPLICATIONS)
SHOWN = 200  # characters of what a client failed by
TICK_MS = 500  # between the records of each input partition
SETTINGS = {  # as the defaults are, where the cluster is not made for single replicas
    "default.replication.factor": "3",  # of topics that applications create for themselves
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class CoordinatorsOutcome(NamedTuple):
    """What a run came to, in which nothing was wrong."""

    replicas: Outcome
    counts: list[Counts]
    failures: list[str]  # why members and loops were replaced that were not meant to be

    def __str__(self) -> str:
        lines = [table({BARNABAS: self.replicas}), _line(_HEADS), _line(_UNITS)]
        for each in self.counts:
            lines.append(_line([each.client, *(f"{count:,}" for count in each[1:])]))
        return "\n".join(lines)


_HEADS = ("", "commits", "members", "loop's", "of which", "given", "killed", "records")
_UNITS = ("", "of group", "failed", "transact.", "aborted", "up", "", "copied once")


def _line(cells: Sequence[str]) -> str:
    first, *others = cells
    return f"{first:14}" + "".join(f"{each:>12}" for each in others)


def run(
    root: Path,
    seed: int,
    planned: Iterator[Planned] | Sequence[Planned] | None = None,
    *,
    minutes: float = 60.0,
    clients: Sequence[str] = CLIENTS,
    longest_s: float = LONGEST_S,
    tick_ms: int = TICK_MS,
    settings: Mapping[str, str] | None = None,
    told: bool = False,
) -> CoordinatorsOutcome:
    """These rounds, or those of the seed for so long; AssertionError, with what is wrong, if anything is."""
    with ExitStack() as stack:
        this = Run(
            root,
            seed,
            stack,
            clients=(CONFLUENT,),
            longest_s=longest_s,
            tick_ms=tick_ms,
            settings={**SETTINGS, **(settings or {})},
        )
        for each in clients:
            ReplicatedTopic(this.cluster, output_of(each), PARTITIONS).create(min_insync_replicas="2")
        load = Load(stack, this.topic, clients, this.random, root)
        until = time.monotonic() + minutes * 60
        rounds = faults = shown = 0
        for fault in planned or deck(this.random, BARNABAS, this.faults.kinds):
            if time.monotonic() > until:
                break
            if told:
                print(f"round {rounds} of seed {seed}: {fault}", flush=True)
            this.do(fault)
            rounds, faults = rounds + 1, faults + len(fault.kinds)
            load.change()
            load.settle()
            load.wait_for_outputs()
            problems = load.check()
            assert not problems, "\n".join(problems)
            if told:
                print("".join(f"  {each[:SHOWN]}\n" for each in load.failures()[shown:]), end="", flush=True)
            shown = len(load.failures())
        load.stop_loops()
        outcome = this.finish(rounds, faults)
        inputs = [
            [value(name, number, which).decode() for name, which in log]
            for number, log in enumerate(this.reader.logs)
        ]
        problems = load.finish(inputs)
        assert not problems, "\n".join(problems)
        return CoordinatorsOutcome(outcome, load.counts(), load.failures())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", default=",".join(CLIENTS))
    return parser.parse_args()


def main() -> None:
    options = _arguments()
    clients = options.clients.split(",")
    lacking = [each for each in clients if not _is_here(each)]
    if lacking:
        sys.exit(f"cannot run here: {', '.join(lacking)}")
    prepare(clients)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that everything is removed
    root = tempfile.mkdtemp()
    print(f"logs and data are in {root}, which is kept after a failure", flush=True)
    print(run(Path(root), options.seed, minutes=options.minutes, clients=clients, told=True))
    shutil.rmtree(root)


def _is_here(client: str) -> bool:
    """Whether this machine can run it."""
    return copying_applications.is_here(client) if client in APPLICATIONS else is_here(client)


def prepare(clients: Sequence[str]) -> None:
    """Fetch and build what is not to be had in a namespace."""
    if apache_kafka.missing() is None:
        apache_kafka.shared_classes()
    for each in clients:
        if each in APPLICATIONS:
            copying_applications.prepare(each)
        else:
            command(each)
            transactors.command(each)


if __name__ == "__main__":
    main()
