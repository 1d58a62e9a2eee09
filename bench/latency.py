"""How long one record takes, at a modest pace: to its acknowledgement, and to a consumer that waits for it.

Most of a round trip is the client's own: threads woken, queues passed. So a responder that does nothing takes
its turn too, and the ratio is that of what lies above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median, quantiles

from bench.clients import workload_of_confluent
from bench.options import Options
from bench.report import Pair, at_most
from bench.scratch import scratch
from bench.sidebyside import in_turns, pair, warm_up
from bench.systems import Responder, Running, started
from bench.topics import create_topic

NEEDED_BYTES = 4 << 30
TOPIC = "latency"
INTERVAL_S = 0.002
WORKLOADS = {"acknowledgements": "produce to ack, acks all", "deliveries": "produce to consumer, acks all"}


def run(options: Options) -> list[Pair]:
    count = 20 if options.small else 2000
    pairs: list[Pair] = []
    with (
        scratch(0 if options.small else NEEDED_BYTES) as root,
        started(options.systems, root) as running,
        Responder().start(root / "responder") as responder,
    ):
        warm_up(running, options)
        for broker in running.values():
            create_topic(broker, TOPIC, 1)
        for workload, title in WORKLOADS.items():
            for broker in running.values():
                round_trips(workload, broker, count)
            pairs += compare(workload, title, running | {"responder": responder}, options, count)
    return pairs


def compare(
    workload: str, title: str, running: dict[str, Running], options: Options, count: int
) -> Iterator[Pair]:
    results = in_turns(running, options, lambda broker: round_trips(workload, broker, count))
    for percent in (50, 99):
        values = {
            name: [quantiles(each, n=100)[percent - 1] * 1e3 for each in rounds]
            for name, rounds in results.items()
        }
        floor = median(values.pop("responder"))
        note = f"floor {floor:.3g}"
        yield pair(f"{title}, p{percent}", "ms", values, at_most(0.5), floor=floor, note=note)


def round_trips(workload: str, broker: Running, count: int) -> list[float]:
    """In seconds, in the order in which they were made."""
    results, _ = workload_of_confluent(workload, broker, topic=TOPIC, count=count, interval_s=INTERVAL_S)
    seconds: list[float] = results["round_trips"]
    return seconds
