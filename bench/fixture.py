"""What the fixtures of `barnabas.testing` cost a test: to the first acknowledged record, and the end.

One node, and the three of `cluster` with a record on all replicas. Modules are loaded before; the topic is
made by asking for it. A test should not notice either: 600 ms are the most that three nodes may take.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from confluent_kafka import Producer

from barnabas.testing import Broker, Cluster
from bench.options import Options
from bench.report import Row
from bench.startup import ACK_DEADLINE_S, EAGER

TITLE = "fixture"
WANTED_S = 0.6


def run(options: Options) -> list[Row]:
    rounds = 1 if options.small else 5 * options.rounds
    kinds: dict[str, Callable[[], Broker | Cluster]] = {"broker": Broker, "cluster": Cluster}
    rows = []
    for name, make in kinds.items():
        with make() as running:  # loads what is loaded when it is first used
            acknowledged(running.bootstrap)
        begins, ends = zip(*(life(make) for _ in range(rounds)), strict=True)
        note = f"at most {WANTED_S:g} s are wanted; the median of {rounds}, the slowest {max(begins):.3f}"
        rows.append(Row(f"{name}: to the first acknowledged record", median(begins), "s", note))
        rows.append(Row(f"{name}: its end", median(ends), "s"))
    return rows


def life(make: Callable[[], Broker | Cluster]) -> tuple[float, float]:
    """The seconds to the first acknowledgement, and those of the end."""
    began = time.monotonic()
    with make() as running:
        acknowledged(running.bootstrap)
        ready = time.monotonic()
    return ready - began, time.monotonic() - ready


def acknowledged(bootstrap: str) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, **EAGER})
    producer.produce("first", b"x", on_delivery=lambda error, _: failures.append(error))
    producer.flush(ACK_DEADLINE_S)
    if failures != [None]:
        raise TimeoutError(f"{bootstrap} did not take the first record: {failures or 'no answer'}")
