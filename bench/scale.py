"""Many partitions and many connections on one broker."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from barnabas.core.descriptors import raise_open_file_limit
from bench.options import Options
from bench.proc import resident_bytes
from bench.report import Pair, value_at_most
from bench.scratch import scratch
from bench.sidebyside import pair
from bench.startup import first_acknowledgement
from bench.systems import SYSTEMS, Running
from bench.topics import create_topics
from bench.wire import Wire

NEEDED_BYTES = 4 << 30
PARTITIONS_A_TOPIC = 100
FLUSH_DEADLINE_S = 120.0
LEADERS_DEADLINE_S = 60.0
POLL_S = 0.02
# an index that is being written is as large as this on Kafka's side: sparse, but not free
SETTINGS = {"log.index.size.max.bytes": "65536"}


def run(options: Options) -> list[Pair]:
    topics, connections = (1, 20) if options.small else (100, 5000)
    raise_open_file_limit()
    stopped: dict[str, list[float]] = {}
    restarted: dict[str, list[float]] = {}
    resident: dict[str, list[float]] = {}
    grown: dict[str, list[float]] = {}
    with scratch(0 if options.small else NEEDED_BYTES) as root:
        for name in options.systems:
            stop_s, start_s = restart(name, root / f"{name}-partitions", topics)
            stopped[name], restarted[name] = [stop_s], [start_s]
            before, after = idle(name, root / f"{name}-connections", connections)
            resident[name], grown[name] = [after / 1e6], [(after - before) / connections / 1e3]
    both = {name: [stopped[name][0] + restarted[name][0]] for name in options.systems}
    many = f"{topics * PARTITIONS_A_TOPIC:,} partitions"
    return [
        pair(f"{many}: clean stop", "s", stopped),
        pair(f"{many}: start, until a record is taken and all are led", "s", restarted),
        pair(f"{many}: restart, both together", "s", both, value_at_most(5)),
        pair(f"{connections:,} idle connections: memory", "MB", resident, value_at_most(150)),
        pair("each of them", "kB", grown),
    ]


def restart(name: str, directory: Path, topics: int) -> tuple[float, float]:
    """Seconds to stop with a record in every partition, and from exec until all of them are led again."""
    names = [f"many-{number}" for number in range(topics)]
    with contextlib.ExitStack() as life:
        broker = life.enter_context(SYSTEMS[name].start(directory, SETTINGS))
        create_topics(broker, dict.fromkeys(names, PARTITIONS_A_TOPIC))
        write_to_all(broker, names)
        began = time.monotonic()
        life.close()
        stop_s = time.monotonic() - began
    with SYSTEMS[name].start(directory, SETTINGS) as broker:
        first_acknowledgement(broker, names[-1], PARTITIONS_A_TOPIC - 1)
        wait_for_leaders(broker, names)
        start_s = time.monotonic() - broker.executed_at
    return stop_s, start_s


def write_to_all(broker: Running, names: list[str]) -> None:
    settings = {"acks": "all", "log_level": 2, "topic.metadata.propagation.max.ms": 120_000}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    answers: list[KafkaError | None] = []
    for name in names:
        for partition in range(PARTITIONS_A_TOPIC):
            producer.produce(
                name, b"x" * 100, partition=partition, on_delivery=lambda e, _: answers.append(e)
            )
        producer.poll(0)
    producer.flush(FLUSH_DEADLINE_S)
    taken = sum(each is None for each in answers)
    if taken != len(names) * PARTITIONS_A_TOPIC:
        raise TimeoutError(f"{broker.name} took {taken} records of {len(answers)} answered")


def wait_for_leaders(broker: Running, names: list[str]) -> None:
    """A restart that lost a partition or a leader is not clean."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    deadline = time.monotonic() + LEADERS_DEADLINE_S
    while True:
        listed = admin.list_topics(timeout=60).topics
        led = sum(each.leader > 0 for name in names for each in listed[name].partitions.values())
        if led == len(names) * PARTITIONS_A_TOPIC:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{broker.name}: {led} partitions have a leader after the restart")
        time.sleep(POLL_S)


def idle(name: str, directory: Path, count: int) -> tuple[int, int]:
    """Resident bytes before and after `count` connections were made, each after one short request."""
    with SYSTEMS[name].start(directory) as broker, contextlib.ExitStack() as connections:
        first_acknowledgement(broker)
        before = resident_bytes(broker.pid)
        for _ in range(count):
            wire = Wire(broker.port)
            connections.callback(wire.close)
            wire.api_versions()
        return before, resident_bytes(broker.pid)
