"""Transactions one after another by one producer: how many a second, and how long a commit takes.

confluent-kafka speaks the older protocol (each partition is added first), Kafka's own client the newer one
(KIP-890: the partition adds it). The time of a commit is what it adds after all records were acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count as counter
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

from bench.clients import TOOL_JVM, watched, workload_of_confluent
from bench.options import Options
from bench.report import Pair, at_least, at_most
from bench.scratch import scratch
from bench.sidebyside import announce, in_turns, pair
from bench.systems import Running, started
from bench.topics import create_topic
from tests.support.apache_kafka import java

NEEDED_BYTES = 4 << 30
TOPIC = "transactions"
TRANSACTIONS = Path(__file__).parent / "java" / "Transactions.java"
NAMES = counter(1)


class Outcome(NamedTuple):
    """So many a second, and the seconds of each commit."""

    a_second: float
    commits: list[float]


def run(options: Options) -> list[Pair]:
    with (
        scratch(0 if options.small else NEEDED_BYTES) as root,
        started(options.systems, root) as running,
    ):
        for broker in running.values():
            create_topic(broker, TOPIC, 1)
        if not options.small:
            for broker in running.values():  # what a JVM needs to have seen
                for client in options.clients:
                    transact(client, broker, records=1, count=5000)
        return [one for client in options.clients for one in compare(client, running, options)]


def compare(client: str, running: dict[str, Running], options: Options) -> Iterator[Pair]:
    for records in (1, 100):
        title = f"{client}, transactions of {records} record{'s' if records > 1 else ''}"
        announce(title)
        count = 20 if options.small else 3000
        results = in_turns(running, options, partial(transact, client, records=records, count=count))
        rates = {name: [one.a_second for one in rounds] for name, rounds in results.items()}
        yield pair(title, "a second", rates, at_least(1.0))
        for percent in (50, 99):
            took = {
                name: [quantiles(one.commits, n=100)[percent - 1] * 1e3 for one in rounds]
                for name, rounds in results.items()
            }
            yield pair(f"{title}: a commit, p{percent}", "ms", took, at_most(1.0))


def transact(client: str, broker: Running, *, records: int, count: int) -> Outcome:
    name, warm_up = f"bench-{next(NAMES)}", count // 10 + 1
    if client == "java":
        arguments = [broker.bootstrap, TOPIC, name, str(records), str(count), str(warm_up)]
        results, _ = watched(java(TRANSACTIONS, *arguments, jvm=TOOL_JVM), broker)
    else:
        results, _ = workload_of_confluent(
            "transactions",
            broker,
            topic=TOPIC,
            transactional_id=name,
            records=records,
            count=count,
            warm_up=warm_up,
        )
    return Outcome(count / results["seconds"], results["commits"])
