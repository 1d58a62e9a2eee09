"""Consume as fast as a client can, by assignment: throughput, and what a gigabyte costs the broker.

What is read was produced by the same client, so its batches are of the size that this client makes, and it is
in the page cache.
"""

from __future__ import annotations

from itertools import product

from bench.clients import CLIENTS, Client, Load
from bench.options import Options
from bench.report import Pair, at_least, at_most
from bench.scratch import scratch
from bench.sidebyside import announce, in_turns, pair, warm_up
from bench.systems import SWIFT_DELETION, Running, started
from bench.topics import create_topic, delete_topics

NEEDED_BYTES = 12 << 30
RECORDS = {100: 2_000_000, 1024: 600_000}
CELLS = tuple(product((1, 12), RECORDS))


def run(options: Options) -> list[Pair]:
    with (
        scratch(0 if options.small else NEEDED_BYTES) as root,
        started(options.systems, root, SWIFT_DELETION) as running,
    ):
        warm_up(running, options)
        pairs: list[Pair] = []
        for client in options.clients:
            for partitions, record_bytes in CELLS[:1] if options.small else CELLS:
                records = 1000 if options.small else RECORDS[record_bytes]
                topic = f"consume-{client}-{partitions}-{record_bytes}"
                load = Load(topic, partitions, record_bytes, records)
                if options.match in (cell := name_of(client, load)):
                    pairs += compare(running, options, CLIENTS[client], load, cell)
    return pairs


def name_of(client: str, load: Load) -> str:
    plural = "s" if load.partitions > 1 else ""
    return f"{client}, {load.partitions} partition{plural}, {load.record_bytes} B"


def compare(
    running: dict[str, Running], options: Options, client: Client, load: Load, cell: str
) -> tuple[Pair, Pair]:
    """One cell of the table: the same topic, read once a round."""
    announce(cell)
    for broker in running.values():
        create_topic(broker, load.topic, load.partitions)
        client.produce(broker, load)
    results = in_turns(running, options, lambda broker: client.consume(broker, load))
    for broker in running.values():
        delete_topics(broker, [load.topic])
    rates = {name: [each.mb_a_second for each in outcomes] for name, outcomes in results.items()}
    costs = {name: [each.cpu_seconds_a_gb for each in outcomes] for name, outcomes in results.items()}
    return (
        pair(cell, "MB/s", rates, at_least(1.0)),
        pair(f"{cell}: broker's CPU", "s/GB", costs, at_most(0.7)),
    )
