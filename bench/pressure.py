"""A consumer of cached data while one producer keeps the disk busy.

The producer's topic is flushed every 20 MB on both systems, so that the disk is written to all the time and
not only when the kernel finds it due. The consumer asks for 64 KiB at a time, at a modest pace, of a topic
that stays in memory; its waits are those that the writer causes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count, cycle
from statistics import quantiles

from confluent_kafka import Producer

from bench.clients import CLIENTS, Load, Outcome
from bench.options import Options
from bench.report import Pair
from bench.scratch import scratch
from bench.sidebyside import in_turns, pair, warm_up
from bench.systems import Running, started
from bench.topics import create_topic, delete_topics
from bench.wire import Wire

NEEDED_BYTES = 20 << 30
CACHED, CACHED_RECORDS, RECORD_BYTES = "cached", 64_000, 1024
WRITTEN_RECORDS = 2_000_000
FLUSH_EVERY_RECORDS = 20_000
FETCH_BYTES = 64 << 10
INTERVAL_S = 0.005
QUIET_FETCHES = 400


def run(options: Options) -> list[Pair]:
    with scratch(0 if options.small else NEEDED_BYTES) as root, started(options.systems, root) as running:
        warm_up(running, options)
        for broker in running.values():
            fill(broker, 1000 if options.small else CACHED_RECORDS)
        quiet = in_turns(running, options, lambda broker: fetches(broker, options, quiet_for(options)))
        busy = in_turns(running, options, lambda broker: under_pressure(broker, options))
    at_rest = {name: [p99_ms(each) for each in rounds] for name, rounds in quiet.items()}
    pressed = {name: [p99_ms(waits) for waits, _ in rounds] for name, rounds in busy.items()}
    rates = {name: [outcome.mb_a_second for _, outcome in rounds] for name, rounds in busy.items()}
    return [
        pair("fetch of 64 KiB from memory, p99 at rest", "ms", at_rest),
        pair("the same while the disk is saturated", "ms", pressed),
        pair("what the producer wrote meanwhile", "MB/s", rates),
    ]


def fill(broker: Running, records: int) -> None:
    """Batches of 16 KiB: whatever a fetch may at most be, it is never less than a batch."""
    create_topic(broker, CACHED, 1)
    settings = {"bootstrap.servers": broker.bootstrap, "batch.size": 16384, "log_level": 2}
    producer = Producer(settings)
    for _ in range(records):
        while True:
            try:
                producer.produce(CACHED, b"x" * RECORD_BYTES, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(60):
        raise TimeoutError(f"{broker.name} did not take what is to be read")


def quiet_for(options: Options) -> Callable[[], bool]:
    """Goes on for a given number of fetches."""
    asked = count(1)
    most = 20 if options.small else QUIET_FETCHES
    return lambda: next(asked) <= most


def fetches(broker: Running, options: Options, go_on: Callable[[], bool]) -> list[float]:
    """Seconds of each fetch, all over the topic, at a steady pace for as long as is said."""
    step = FETCH_BYTES // RECORD_BYTES
    offsets = cycle(range(0, (1000 if options.small else CACHED_RECORDS) - step, step))
    wire = Wire(broker.port)
    seconds = []
    due = time.perf_counter()
    while go_on():
        due += INTERVAL_S
        time.sleep(max(0.0, due - time.perf_counter()))
        started_at = time.perf_counter()
        received = wire.fetch(CACHED.encode(), next(offsets), FETCH_BYTES)
        seconds.append(time.perf_counter() - started_at)
        if received < RECORD_BYTES:
            raise AssertionError(f"{broker.name} gave {received} bytes of what is there")
    wire.close()
    return seconds


def under_pressure(broker: Running, options: Options) -> tuple[list[float], Outcome]:
    """The waits of the consumer, and what the producer did."""
    create_topic(broker, "pressure", 1, {"flush.messages": str(FLUSH_EVERY_RECORDS)})
    load = Load("pressure", 1, RECORD_BYTES, 20_000 if options.small else WRITTEN_RECORDS)
    outcomes: list[Outcome] = []
    producing = threading.Thread(target=lambda: outcomes.append(CLIENTS["confluent"].produce(broker, load)))
    producing.start()
    try:
        waits = fetches(broker, options, producing.is_alive)
    finally:
        producing.join()
    delete_topics(broker, ["pressure"])
    (outcome,) = outcomes
    return waits, outcome


def p99_ms(seconds: list[float]) -> float:
    return quantiles(seconds, n=100)[98] * 1e3
