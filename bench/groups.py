"""Groups: offsets committed a second, how long a rebalance takes, and the memory of large groups.

The members are made by hand (bench/members.py): hundreds of clients would take more of the machine than both
brokers. Both brokers have the same settings; no rebalance is put off (group.initial.rebalance.delay.ms=0).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

from bench.clients import watched
from bench.options import Options
from bench.proc import resident_bytes
from bench.report import Pair, at_least, at_most, value_at_most
from bench.scratch import scratch
from bench.sidebyside import announce, in_turns, pair
from bench.systems import Running, started
from bench.topics import create_topic, create_topics

NEEDED_BYTES = 4 << 30
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
TOPIC = "read-by-groups"
MEMORY_MB = 100


def run(options: Options) -> list[Pair]:
    small = options.small
    members, partitions = (4, 20) if small else (100, 1000)
    with (
        scratch(0 if small else NEEDED_BYTES) as root,
        started(options.systems, root, SETTINGS) as running,
    ):
        for broker in running.values():
            create_topic(broker, TOPIC, partitions)
            for _ in range(1 if small else 3):  # what a JVM needs to have seen
                committed(broker, 4 if small else 100, 50 if small else 40_000)
                rebalanced(broker, members, partitions, 2 if small else 40, cooperative=True)
        pairs = list(commits_a_second(running, options))
        pairs += rebalance_times(running, options, members, partitions)
        pairs += memory(running, options)
    return pairs


def commits_a_second(running: dict[str, Running], options: Options) -> Iterator[Pair]:
    count = 100 if options.small else 40_000
    for connections in (1, 4) if options.small else (1, 10, 100):
        asked = count // 4 if connections == 1 else count
        title = f"offset commits a second, {connections} at a time"
        announce(title)
        times = in_turns(running, options, partial(committed, connections=connections, count=asked))
        rates = {name: [asked / seconds for seconds in rounds] for name, rounds in times.items()}
        yield pair(title, "commits/s", rates, at_least(1.0))


def committed(broker: Running, connections: int, count: int) -> float:
    """Seconds for so many commits."""
    results, _ = workload("commits", broker, topic=TOPIC, connections=connections, count=count)
    seconds: float = results["seconds"]
    return seconds


def rebalance_times(
    running: dict[str, Running], options: Options, members: int, partitions: int
) -> Iterator[Pair]:
    for cooperative in (False, True):
        kind = "cooperative, two rounds" if cooperative else "eager"
        title = f"rebalance of {members} members, {partitions} partitions, {kind}"
        announce(title)
        measure = partial(
            rebalanced,
            members=members,
            partitions=partitions,
            count=2 if options.small else 20,
            cooperative=cooperative,
        )
        results = in_turns(running, options, measure)
        times = {name: [median(one) * 1e3 for one in rounds] for name, rounds in results.items()}
        yield pair(title, "ms", times, at_most(1.0))


def rebalanced(
    broker: Running, members: int, partitions: int, count: int, *, cooperative: bool
) -> list[float]:
    """Seconds of each of so many rebalances."""
    results, _ = workload(
        "rebalances",
        broker,
        group=f"bench-{cooperative}",
        topic=TOPIC,
        members=members,
        partitions=partitions,
        cooperative=cooperative,
        count=count,
    )
    seconds: list[float] = results["seconds"]
    return seconds


def memory(running: dict[str, Running], options: Options) -> Iterator[Pair]:
    """What a large group takes beside what was there before it."""
    members = 10 if options.small else 1000
    topics, partitions = (1, 10) if options.small else (10, 10_000)
    names = [f"many-{number}" for number in range(topics)]
    announce("the memory of large groups")
    taken: dict[str, dict[str, list[float]]] = {"members": {}, "offsets": {}}
    for name, broker in running.items():
        before = resident_bytes(broker.pid)
        with staying("crowd", broker, group="crowd", topic=TOPIC, members=members, partitions=members):
            taken["members"][name] = [(resident_bytes(broker.pid) - before) / 1e6]
        if name == "barnabas":  # Kafka needs minutes for so many partitions
            create_topics(broker, dict.fromkeys(names, partitions))
            before = resident_bytes(broker.pid)
            with staying("offsets", broker, group="offsets", topics=names, partitions=partitions):
                taken["offsets"][name] = [(resident_bytes(broker.pid) - before) / 1e6]
    count = topics * partitions
    within = value_at_most(MEMORY_MB)
    yield pair(f"memory of a group of {members:,} members", "MB", taken["members"], within)
    yield pair(f"memory of a group of {count:,} offsets", "MB", taken["offsets"], within)


def workload(name: str, broker: Running, **arguments: object) -> tuple[dict[str, Any], float]:
    return watched(_command(name, broker, arguments), broker)


def _command(name: str, broker: Running, arguments: dict[str, object]) -> list[str]:
    given = json.dumps({"bootstrap": broker.bootstrap, **arguments})
    return [sys.executable, "-m", "bench.members", name, given]


@contextmanager
def staying(name: str, broker: Running, **arguments: object) -> Iterator[None]:
    """Members that are there inside the block."""
    command = _command(name, broker, arguments)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if not any(line.startswith("end") for line in process.stdout):
                raise RuntimeError(f"{command} ended early")
            yield
            process.stdin.close()
        except BaseException:
            process.kill()
            raise
