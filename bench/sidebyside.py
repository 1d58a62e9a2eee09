"""Fair comparison: warmed up, in turns, by medians.

All that is compared runs at the same time and is measured in alternation (A, B, A, B ...), so that both sides
see the same minutes of a machine. What one wrote is on the disk before the other's turn.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from statistics import median
from typing import TypeVar

from bench.clients import CLIENTS, Load
from bench.options import Options
from bench.report import Pair, Target, number
from bench.systems import Running
from bench.topics import create_topic, delete_topics

T = TypeVar("T")
# what a JVM needs to have seen of each client before its compiler is done with the hot path
WARM_UP = (Load("warm-100", 12, 100, 500_000), Load("warm-1024", 12, 1024, 200_000))


def announce(what: str) -> None:
    """A full run takes its time: the terminal says what it is at."""
    print(f"measuring {what}", file=sys.stderr, flush=True)


def warm_up(running: Mapping[str, Running], options: Options) -> None:
    """Some hundred megabytes in and out of each, by every client that will be used."""
    announce("nothing yet: warming up")
    for broker in running.values():
        for client in options.clients:
            for load in WARM_UP:
                records = 1000 if options.small else load.records
                given = load._replace(topic=f"{load.topic}-{client}", records=records)
                create_topic(broker, given.topic, given.partitions)
                CLIENTS[client].produce(broker, given)
                CLIENTS[client].consume(broker, given)
                delete_topics(broker, [given.topic])


def in_turns(
    running: Mapping[str, Running], options: Options, measure: Callable[[Running], T]
) -> dict[str, list[T]]:
    """The results of each, round by round."""
    results: dict[str, list[T]] = {name: [] for name in running}
    for _ in range(1 if options.small else options.rounds):
        for name, broker in running.items():
            if not options.small:
                os.sync()
            results[name].append(measure(broker))
    return results


def pair(
    name: str,
    unit: str,
    results: Mapping[str, list[float]],
    target: Target | None = None,
    *,
    floor: float = 0.0,
    note: str = "",
) -> Pair:
    """Medians side by side; the note tells how far the rounds lay apart."""
    middle = {system: median(values) for system, values in results.items()}
    spread = [
        f"{system} {number(min(values))} to {number(max(values))}"
        for system, values in results.items()
        if len(values) > 1
    ]
    notes = [note, *spread] if note else spread
    return Pair(name, unit, middle.get("barnabas"), middle.get("kafka"), target, floor, "; ".join(notes))
