"""One workload of confluent-kafka in a process of its own, so that its CPU time is not the broker's.

    python -m bench.confluent produce '{"bootstrap": ..., "topic": ..., "records": ..., ...}'

It prints `begin` when it is about to start, and `end {"seconds": ...}` when the last record was acknowledged
or received; whoever started it reads the broker's account at these two lines.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

SLICE_RECORDS = 1000
POLL_RECORDS = 10_000
FULL_QUEUE_WAIT_S = 0.001
FLUSH_DEADLINE_S = 60.0
SILENCE_DEADLINE_S = 30.0


def begin() -> None:
    print("begin", flush=True)


def end(**results: object) -> None:
    print("end", json.dumps(results), flush=True)


def produce(bootstrap: str, topic: str, count: int, record_bytes: int, acks: str) -> None:
    """As fast as it goes, with librdkafka's defaults; no partition is named, so it sticks to one a while."""
    failures: list[object] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "acks": acks,
        "delivery.report.only.error": True,
        "on_delivery": lambda error, _: failures.append(error),
    }
    producer = Producer(settings)
    producer.list_topics(topic, timeout=10)
    records = [{"value": os.urandom(record_bytes)} for _ in range(SLICE_RECORDS)]
    begin()
    started = time.perf_counter()
    left = count
    while left:
        try:
            taken = producer.produce_batch(topic, records if left >= SLICE_RECORDS else records[:left])
        except BufferError:
            taken = 0
        left -= taken
        if not taken:
            producer.poll(FULL_QUEUE_WAIT_S)
    lost = producer.flush(FLUSH_DEADLINE_S)
    seconds = time.perf_counter() - started
    if failures or lost:
        raise SystemExit(f"{len(failures)} records failed ({failures[:1]}), {lost} unanswered")
    end(seconds=seconds)


def consume(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    """From the first record on, by assignment, until `count` have come."""
    consumer = Consumer(reading(bootstrap))
    consumer.list_topics(topic, timeout=10)
    begin()
    started = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    left, heard_at = count, started
    while left > 0:
        messages = consumer.consume(min(left, POLL_RECORDS), 0.5)
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
        left -= len(messages)
        now = time.perf_counter()
        heard_at = now if messages else heard_at
        if now - heard_at > SILENCE_DEADLINE_S:
            raise SystemExit(f"nothing for {SILENCE_DEADLINE_S:.0f} s; {left} records are missing")
    end(seconds=time.perf_counter() - started)
    consumer.close()


def reading(bootstrap: str) -> dict[str, Any]:
    """Settings of a consumer by assignment: the group is named because it must be, and never joined.

    By default it sleeps for a second whenever 100,000 records lie unread, and that is all one would measure.
    """
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "queued.min.messages": 1_000_000,
        "fetch.queue.backoff.ms": 1,
    }


def acknowledgements(bootstrap: str, topic: str, count: int, interval_s: float) -> None:
    """Round trips of single records: from produce() to the report of delivery."""
    producer = Producer(prompt(bootstrap))
    taken: list[float] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            raise KafkaException(error)
        taken.append(time.perf_counter())

    def once() -> float:
        started = time.perf_counter()
        producer.produce(topic, b"x" * 100, partition=0, on_delivery=delivered)
        while not taken:
            producer.poll(1.0)
        return taken.pop() - started

    paced(once, count, interval_s)


def deliveries(bootstrap: str, topic: str, count: int, interval_s: float) -> None:
    """Round trips through the log: from produce() to the moment a consumer that waits has the record."""
    producer = Producer(prompt(bootstrap))
    consumer = Consumer(reading(bootstrap) | {"socket.nagle.disable": True})
    at = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
    consumer.assign([TopicPartition(topic, 0, at)])

    def once() -> float:
        started = time.perf_counter()
        producer.produce(topic, b"x" * 100, partition=0)
        message = consumer.poll(10.0)
        seconds = time.perf_counter() - started
        if message is None or message.error() is not None:
            raise SystemExit(f"no record came: {message and message.error()}")
        producer.poll(0)
        return seconds

    paced(once, count, interval_s)
    consumer.close()


def steady(bootstrap: str, topic: str, record_bytes: int, rate: int, seconds: float, linger_ms: int) -> None:
    """Records at a fixed rate, whatever becomes of those before: from the moment at which each was due to the
    report of its delivery. The first second does not count."""
    producer = Producer(prompt(bootstrap) | {"linger.ms": linger_ms})
    value, waits, failures = os.urandom(record_bytes), [], []

    def delivered(due: float, error: KafkaError | None, _: object) -> None:
        waits.append(time.perf_counter() - due)
        if error is not None:
            failures.append(error)

    producer.list_topics(topic, timeout=10)
    begin()
    started = time.perf_counter()
    count = int(rate * (seconds + 1))
    for number in range(count):
        due = started + number / rate
        while (early := due - time.perf_counter()) > 0:
            producer.poll(early)
        producer.produce(topic, value, partition=0, on_delivery=partial(delivered, due))
        if not number % SLICE_RECORDS:
            producer.poll(0)
    lost = producer.flush(FLUSH_DEADLINE_S)
    if failures or lost:
        raise SystemExit(f"{len(failures)} records failed ({failures[:1]}), {lost} unanswered")
    end(round_trips=waits[rate:])


def prompt(bootstrap: str) -> dict[str, Any]:
    """Settings of a producer that waits for nothing before it sends."""
    return {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "socket.nagle.disable": True}


def paced(once: Callable[[], float], count: int, interval_s: float) -> None:
    """Measure `once` at a steady pace; the first tenth is left out, while connections are made."""
    warmup = count // 10 + 1
    for _ in range(warmup):
        once()
    begin()
    seconds = []
    due = time.perf_counter()
    for _ in range(count):
        due += interval_s
        time.sleep(max(0.0, due - time.perf_counter()))
        seconds.append(once())
    end(round_trips=seconds)


def transactions(
    bootstrap: str, topic: str, transactional_id: str, records: int, count: int, warm_up: int
) -> None:
    """So many transactions one after another, and the seconds that each commit took after its records."""
    producer = Producer(prompt(bootstrap) | {"transactional.id": transactional_id})
    producer.init_transactions(30.0)
    value = os.urandom(100)

    def once() -> float:
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, value, partition=0)
        if producer.flush(FLUSH_DEADLINE_S):
            raise SystemExit("records were not acknowledged")
        started = time.perf_counter()
        producer.commit_transaction(30.0)
        return time.perf_counter() - started

    for _ in range(warm_up):
        once()
    begin()
    started = time.perf_counter()
    commits = [once() for _ in range(count)]
    end(seconds=time.perf_counter() - started, commits=commits)


WORKLOADS: Mapping[str, Callable[..., None]] = {
    "produce": produce,
    "consume": consume,
    "acknowledgements": acknowledgements,
    "deliveries": deliveries,
    "steady": steady,
    "transactions": transactions,
}

if __name__ == "__main__":
    WORKLOADS[sys.argv[1]](**json.loads(sys.argv[2]))
