"""Produce as fast as a client can: throughput, and what a gigabyte costs the broker."""

from __future__ import annotations

from itertools import count, product

from bench.clients import CLIENTS, Client, Load, Outcome
from bench.options import Options
from bench.report import Pair, at_least, at_most
from bench.scratch import scratch
from bench.sidebyside import announce, in_turns, pair, warm_up
from bench.systems import SWIFT_DELETION, Running, started
from bench.topics import create_topic, delete_topics

NEEDED_BYTES = 20 << 30
RECORDS = {100: 1_600_000, 1024: 400_000}
CELLS = tuple(product((1, 12), RECORDS, ("1", "all")))
# of topics: no name comes twice, so that nobody waits for a deletion
NUMBERS = count()


def run(options: Options) -> list[Pair]:
    with (
        scratch(0 if options.small else NEEDED_BYTES) as root,
        started(options.systems, root, SWIFT_DELETION) as running,
    ):
        warm_up(running, options)
        pairs: list[Pair] = []
        for client in options.clients:
            for partitions, record_bytes, acks in CELLS[:1] if options.small else CELLS:
                records = 1000 if options.small else RECORDS[record_bytes]
                load = Load("produce", partitions, record_bytes, records, acks)
                if options.match in (cell := name_of(client, load)):
                    pairs += compare(running, options, CLIENTS[client], load, cell)
    return pairs


def name_of(client: str, load: Load) -> str:
    plural = "s" if load.partitions > 1 else ""
    return f"{client}, {load.partitions} partition{plural}, {load.record_bytes} B, acks {load.acks}"


def compare(
    running: dict[str, Running], options: Options, client: Client, load: Load, cell: str
) -> tuple[Pair, Pair]:
    """One cell of the table: each round into a fresh topic."""
    announce(cell)

    def once(broker: Running) -> Outcome:
        given = load._replace(topic=f"produce-{next(NUMBERS)}")
        create_topic(broker, given.topic, given.partitions)
        outcome = client.produce(broker, given)
        delete_topics(broker, [given.topic])
        return outcome

    results = in_turns(running, options, once)
    rates = {name: [each.mb_a_second for each in outcomes] for name, outcomes in results.items()}
    costs = {name: [each.cpu_seconds_a_gb for each in outcomes] for name, outcomes in results.items()}
    return (
        pair(cell, "MB/s", rates, at_least(1.0)),
        pair(f"{cell}: broker's CPU", "s/GB", costs, at_most(0.5)),
    )
