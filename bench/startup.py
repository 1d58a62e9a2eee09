"""From exec to the first acknowledged record, and the memory a broker takes: fresh, and after load.

The client's modules are loaded before; the topic is made by asking for it. The clock of Apache Kafka starts
after its directory was formatted by another process; that of Barnabas includes formatting.
"""

from __future__ import annotations

import time
from itertools import count

from confluent_kafka import Producer

from bench.options import Options
from bench.proc import resident_bytes
from bench.report import Pair, at_most
from bench.scratch import scratch
from bench.sidebyside import pair, warm_up
from bench.systems import SYSTEMS, Running, started

NEEDED_BYTES = 4 << 30
ACK_DEADLINE_S = 120.0
# a client that asks again at once: otherwise its own patience would be measured
EAGER = {
    "acks": "all",
    "linger.ms": 0,
    "reconnect.backoff.ms": 5,
    "retry.backoff.ms": 5,
    "topic.metadata.refresh.fast.interval.ms": 5,
    "topic.metadata.propagation.max.ms": 120_000,
    # it tells of each attempt that came too early
    "log_level": 2,
}


def run(options: Options) -> list[Pair]:
    seconds: dict[str, list[float]] = {name: [] for name in options.systems}
    fresh_mb: dict[str, list[float]] = {name: [] for name in options.systems}
    with scratch(0 if options.small else NEEDED_BYTES) as root:
        numbers = count()
        for _ in range(1 if options.small else options.rounds):
            for name in options.systems:
                with SYSTEMS[name].start(root / f"{name}-{next(numbers)}") as broker:
                    seconds[name].append(first_acknowledgement(broker))
                    fresh_mb[name].append(resident_bytes(broker.pid) / 1e6)
        with started(options.systems, root) as running:
            warm_up(running, options)
            loaded_mb = {name: [resident_bytes(broker.pid) / 1e6] for name, broker in running.items()}
    return [
        pair("start to first acknowledged record", "s", seconds, at_most(0.1)),
        pair("memory after the first record", "MB", fresh_mb, at_most(0.1)),
        pair("memory after load", "MB", loaded_mb, at_most(0.1)),
    ]


def first_acknowledgement(broker: Running, topic: str = "first", partition: int = 0) -> float:
    """Seconds since exec when a record has been acknowledged."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, **EAGER})
    failures: list[object] = []
    producer.produce(topic, b"x", partition=partition, on_delivery=lambda error, _: failures.append(error))
    producer.flush(ACK_DEADLINE_S)
    seconds = time.monotonic() - broker.executed_at
    if failures != [None]:
        raise TimeoutError(f"{broker.name} did not take the first record: {failures or 'no answer'}")
    return seconds
