"""How long records take on a broker whose cleaner is at work, beside the same broker at rest.

A topic is filled whose records may not be compacted before a certain moment (their timestamps lie ahead).
Until then round trips through another topic are measured at rest, from then on beside the cleaner, which has
more to do than the measurement takes.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

from bench.clients import workload_of_confluent
from bench.compaction_data import TOPIC, batches
from bench.options import Options
from bench.report import Pair
from bench.scratch import scratch
from bench.sidebyside import announce, in_turns, pair, warm_up
from bench.systems import Running, started
from bench.topics import create_topic, delete_topics
from bench.wire import Wire

NEEDED_BYTES = 12 << 30
RECORDS = 20_000_000
# made once and sent again and again
RECORDS_AT_HAND = 300_000
RECORDS_A_BATCH = 5_000
# to fill the topic, and to measure at rest
PREPARATION_S = 60.0
LAG_MS = 1000
BACKOFF_MS = 100
AT_REST, COMPACTING = "at rest", "while compacting"
LATENCY = "latency"
INTERVAL_S = 0.002
WORKLOADS = {
    "acknowledgements": "produce to ack, acks all, p99",
    "deliveries": "produce to consumer, acks all, p99",
}


class Turn(NamedTuple):
    """99th percentiles by workload and state; and whether the broker was in it all the while."""

    p99_ms: dict[tuple[str, str], float]
    was_in_state: dict[str, bool]


def run(options: Options) -> list[Pair]:
    with (
        scratch(0 if options.small else NEEDED_BYTES) as root,
        started(options.systems, root, {"log.cleaner.backoff.ms": str(BACKOFF_MS)}) as running,
    ):
        warm_up(running, options)
        for broker in running.values():
            create_topic(broker, LATENCY, 1)
        announce("latency beside compaction")
        results = in_turns(running, options, lambda broker: one_turn(broker, root / broker.name, options))
    pairs = []
    for workload, title in WORKLOADS.items():
        for state in (AT_REST, COMPACTING):
            values = {
                name: [turn.p99_ms[workload, state] for turn in turns] for name, turns in results.items()
            }
            doubtful = [
                name for name, turns in results.items() if not all(turn.was_in_state[state] for turn in turns)
            ]
            note = f"not all the while: {', '.join(doubtful)}" if doubtful else ""
            pairs.append(pair(f"{title}, {state}", "ms", values, note=note))
    return pairs


def one_turn(broker: Running, home: Path, options: Options) -> Turn:
    begins_at = time.time() + (3.0 if options.small else PREPARATION_S)
    fill(broker, 10_000 if options.small else RECORDS, int(begins_at * 1000) - LAG_MS)
    p99s = {(workload, AT_REST): p99_ms(workload, broker, options) for workload in WORKLOADS}
    was_at_rest = time.time() < begins_at
    time.sleep(max(0.0, begins_at - time.time()) + BACKOFF_MS / 1000)
    p99s |= {(workload, COMPACTING): p99_ms(workload, broker, options) for workload in WORKLOADS}
    was_compacting = not is_done(home)
    delete_topics(broker, [TOPIC])
    return Turn(p99s, {AT_REST: was_at_rest, COMPACTING: was_compacting})


def fill(broker: Running, records: int, timestamp_ms: int) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    settings |= {"segment.bytes": str(64 << 20), "min.compaction.lag.ms": str(LAG_MS)}
    create_topic(broker, TOPIC, 1, settings)
    at_hand = list(
        batches(min(records, RECORDS_AT_HAND), timestamp_ms=timestamp_ms, records_a_batch=RECORDS_A_BATCH)
    )
    wire = Wire(broker.port)
    for number in range(records // RECORDS_A_BATCH):
        wire.produce(TOPIC.encode(), at_hand[number % len(at_hand)])
    wire.close()


def p99_ms(workload: str, broker: Running, options: Options) -> float:
    count = 20 if options.small else 700
    results, _ = workload_of_confluent(workload, broker, topic=LATENCY, count=count, interval_s=INTERVAL_S)
    return quantiles(results["round_trips"], n=100)[98] * 1e3


def is_done(home: Path) -> bool:
    """Whether a round of cleaning has ended: its end is noted then."""
    checkpoint = home / "data" / "cleaner-offset-checkpoint"
    return checkpoint.exists() and f"{TOPIC} 0 " in checkpoint.read_text()
