"""Three nodes beside three of Apache Kafka: changes of the metadata, the controller's failover, idle cost."""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from bench.options import Options
from bench.proc import cpu_seconds, resident_bytes
from bench.report import Pair, value_at_most
from bench.scratch import scratch
from bench.sidebyside import announce, pair
from bench.systems import KAFKA_JVM
from tests.support.combined_cluster import POLL_S, CombinedCluster
from tests.support.raw_client import RawClient

NEEDED_BYTES = 4 << 30
DEADLINE_S = 300.0
PARTITIONS_A_TOPIC = 100
BROKER_ALONE = 4
# so that the log of what is created here has a snapshot
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "262144"}

Results = dict[str, dict[str, list[float]]]


def run(options: Options) -> list[Pair]:
    found: Results = {}
    with scratch(0 if options.small else NEEDED_BYTES) as root:
        for system in options.systems:
            announce(f"a cluster of {system}")
            with CombinedCluster(
                system, root / system, later=1, settings=SNAPSHOTS, jvm=KAFKA_JVM
            ) as cluster:
                for name, values in _measure(cluster, options).items():
                    found.setdefault(name, {})[system] = values
    units = {"rate": "/s", "ms": "ms", "cpu": "% of a core", "memory": "MB"}
    targets = {"failover known": value_at_most(500)}
    names = {
        "rate one": "topics created one after another",
        "rate many": "topics created 100 at a time",
        "ms partitions": f"{_partitions(options):,} partitions created in two requests",
        "ms failover known": "active controller killed: the next one known to all",
        "ms failover": "active controller killed: the next topic created",
        "ms caught up": f"a broker alone joins {_partitions(options):,} partitions, from exec",
        "cpu idle": "three nodes idle, with those partitions",
        "memory": "memory of three nodes",
    }
    return [
        pair(text, units[key.partition(" ")[0]], found[key], targets.get(key.partition(" ")[2]))
        for key, text in names.items()
    ]


def _partitions(options: Options) -> int:
    return 200 if options.small else 10_000


def _measure(cluster: CombinedCluster, options: Options) -> dict[str, list[float]]:
    count, rounds, idle_s = (5, 1, 0.2) if options.small else (200, 5, 20.0)
    results = {
        "rate one": [_one_by_one(cluster, count)],
        "rate many": [_many_at_a_time(cluster, count)],
        "ms partitions": [_create_partitions(cluster, _partitions(options))],
    }
    executed_at = cluster.spawn(BROKER_ALONE)
    results["ms caught up"] = [(cluster.wait_until_active(BROKER_ALONE) - executed_at) * 1000]
    cluster.kill(BROKER_ALONE)
    kills = [_kill_leader(cluster, number) for number in range(rounds)]
    results["ms failover known"] = [known for known, _ in kills]
    results["ms failover"] = [answered for _, answered in kills]
    time.sleep(min(idle_s, 5.0))
    began, before = time.monotonic(), sum(map(cpu_seconds, cluster.pids))
    time.sleep(idle_s)
    spent = sum(map(cpu_seconds, cluster.pids)) - before
    results["cpu idle"] = [100 * spent / (time.monotonic() - began)]
    results["memory"] = [sum(map(resident_bytes, cluster.pids)) / 1e6]
    return results


def _admin(cluster: CombinedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})


def _one_by_one(cluster: CombinedCluster, count: int) -> float:
    admin = _admin(cluster)
    began = time.monotonic()
    for number in range(count):
        _create(admin, {f"one-{number}": 1})
    return count / (time.monotonic() - began)


def _many_at_a_time(cluster: CombinedCluster, count: int) -> float:
    admin = _admin(cluster)
    began = time.monotonic()
    for first in range(0, count, 100):
        _create(admin, {f"many-{number}": 1 for number in range(first, min(count, first + 100))})
    return count / (time.monotonic() - began)


def _create_partitions(cluster: CombinedCluster, partitions: int) -> float:
    names = [f"large-{number}" for number in range(partitions // PARTITIONS_A_TOPIC)]
    admin, half = _admin(cluster), (len(names) + 1) // 2  # Apache Kafka takes fewer records a request
    began = time.monotonic()
    for some in (names[:half], names[half:]):
        _create(admin, dict.fromkeys(some, PARTITIONS_A_TOPIC))
    return (time.monotonic() - began) * 1000


def _create(admin: AdminClient, partitions_by_name: dict[str, int]) -> None:
    topics = [NewTopic(name, count, 1) for name, count in partitions_by_name.items()]
    for future in admin.create_topics(topics, operation_timeout=120, request_timeout=120).values():
        future.result(DEADLINE_S)


def _kill_leader(cluster: CombinedCluster, number: int) -> tuple[float, float]:
    """Milliseconds until the survivors know the next active controller, and until it has created a topic."""
    victim = cluster.leader()
    killed_at = cluster.kill(victim)
    cluster.leader()
    known_ms = (time.monotonic() - killed_at) * 1000
    survivor = next(each for each in cluster.controller_ports if each != victim)
    _create_by(cluster.ports[survivor], f"after-{number}")
    answered_ms = (time.monotonic() - killed_at) * 1000
    cluster.spawn(victim)
    cluster.wait_until_active(3)
    cluster.leader()
    return known_ms, answered_ms


def _create_by(port: int, name: str) -> None:
    """By way of one broker, which has to find the new controller; asked again as a client would."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
    deadline = time.monotonic() + DEADLINE_S
    with RawClient(port) as client:
        while True:
            code = client.ask(request, 7, CreateTopicsResponse).topics[0].error_code
            if WIRE_ERRORS[code].name in ("NONE", "TOPIC_ALREADY_EXISTS"):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"no topic could be created: {WIRE_ERRORS[code].name}")
            time.sleep(POLL_S)
