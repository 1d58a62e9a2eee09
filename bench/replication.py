"""Three nodes beside three of Apache Kafka, every record on all of them: replication 3, acks=all.

Throughput and what a gigabyte of values costs the three nodes together, by librdkafka (large batches) and by
Kafka's own client (16 KiB); latency at rates that both sustain; how fast a follower without files gets them
back, beside `cp`; what a thousand idle partitions cost; how long it takes until others lead when one of the
nodes is killed, of three thousand partitions. Both clusters run all the time and take turns.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from itertools import count, product
from pathlib import Path
from statistics import median, quantiles
from types import MappingProxyType

from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.schema import NO_UUID
from bench.catching_up import catch_up
from bench.clients import CLIENTS, Load, Outcome, workload_of_confluent
from bench.options import Options
from bench.proc import resident_bytes
from bench.report import Pair, at_least, at_most
from bench.scratch import scratch
from bench.sidebyside import announce, in_turns, pair, warm_up
from bench.systems import KAFKA_JVM, SWIFT_DELETION, Responder, Running
from bench.topics import create_topic, create_topics, delete_topics
from tests.support.combined_cluster import CombinedCluster
from tests.support.raw_client import RawClient

NEEDED_BYTES = 16 << 30
REPLICAS = 3
SETTINGS: Mapping[str, str] = MappingProxyType({"min.insync.replicas": "2"})
# bounded, so that Kafka needs a few seconds for each
RECORDS = {100: 1_000_000, 1024: 200_000}
CELLS = tuple(product((6, 60), RECORDS))
# large batches cost per byte, small ones per batch
CPU_TARGETS = {"confluent": 0.3, "java": 0.6}
# record bytes, records a second, linger.ms
STEADY = {"1,000 records/s of 100 B": (100, 1_000, 0), "10 MB/s of 1 KiB": (1024, 10_000, 5)}
STEADY_S = 8.0
IDLE_TOPICS, IDLE_PARTITIONS = 10, 100
IDLE_S = 20.0
FAIL_OVER_TOPICS, FAIL_OVER_PARTITIONS = 30, 100
METADATA = 9
FAIL_OVER_DEADLINE_S = 120.0
SETTLE_S = 5.0

Clusters = dict[str, CombinedCluster]
# of topics: no name comes twice, so that nobody waits for a deletion
NUMBERS = count()


def run(options: Options) -> list[Pair]:
    with (
        scratch(0 if options.small else NEEDED_BYTES) as root,
        contextlib.ExitStack() as life,
    ):
        announce("nothing yet: starting three nodes of each")
        clusters = {
            system: life.enter_context(
                CombinedCluster(system, root / system, settings=SWIFT_DELETION, jvm=KAFKA_JVM)
            )
            for system in options.systems
        }
        running = _running(clusters)
        warm_up(running, options)
        pairs = [*throughput(running, options)]
        memory = {name: [sum(map(resident_bytes, _pids(each))) / 1e6] for name, each in running.items()}
        pairs.append(pair("memory of three nodes after that", "MB", memory, at_most(0.1)))
        pairs += latencies(running, options, root)
        pairs += catching_up(clusters, options, root)
        pairs += idle(clusters, options)
        pairs += fail_over(clusters, options)
    return pairs


def _running(clusters: Clusters) -> dict[str, Running]:
    """The nodes that run now."""
    found = {}
    for name, cluster in clusters.items():
        first, *others = cluster.pids
        found[name] = Running(name, cluster.bootstrap, first, 0.0, 0.0, tuple(others), REPLICAS)
    return found


def _pids(running: Running) -> tuple[int, ...]:
    return (running.pid, *running.other_pids)


def throughput(running: dict[str, Running], options: Options) -> Iterator[Pair]:
    for client in options.clients:
        for partitions, record_bytes in CELLS[:1] if options.small else CELLS:
            records = 1000 if options.small else RECORDS[record_bytes]
            load = Load("replicated", partitions, record_bytes, records, "all")
            cell = f"{client}, {partitions} partitions, {record_bytes} B"
            if options.match in cell:
                yield from _compare(running, options, client, load, cell)


def _compare(
    running: dict[str, Running], options: Options, client: str, load: Load, cell: str
) -> tuple[Pair, Pair]:
    """One cell of the table: each round into a fresh topic."""
    announce(cell)

    def once(cluster: Running) -> Outcome:
        given = load._replace(topic=f"replicated-{next(NUMBERS)}")
        create_topic(cluster, given.topic, given.partitions, SETTINGS)
        outcome = CLIENTS[client].produce(cluster, given)
        delete_topics(cluster, [given.topic])
        return outcome

    results = in_turns(running, options, once)
    rates = {name: [each.mb_a_second for each in outcomes] for name, outcomes in results.items()}
    costs = {name: [each.cpu_seconds_a_gb for each in outcomes] for name, outcomes in results.items()}
    return (
        pair(cell, "MB/s", rates, at_least(1.5)),
        pair(f"{cell}: CPU of three nodes", "s/GB", costs, at_most(CPU_TARGETS[client])),
    )


def latencies(running: dict[str, Running], options: Options, root: Path) -> Iterator[Pair]:
    """From when a record was due to its acknowledgement; what the client itself takes is left out."""
    with Responder().start(root / "responder") as responder:
        for title, (record_bytes, rate, linger_ms) in STEADY.items():
            cell = f"produce to ack at {title}"
            if options.match not in cell:
                continue
            announce(cell)
            topic, seconds = f"steady-{next(NUMBERS)}", 0.2 if options.small else STEADY_S
            for cluster in running.values():
                create_topic(cluster, topic, 1, SETTINGS)
            given = {"topic": topic, "record_bytes": record_bytes, "linger_ms": linger_ms}
            given |= {"rate": rate // 10 if options.small else rate, "seconds": seconds}

            def once(target: Running, given: Mapping[str, object] = given) -> list[float]:
                results, _ = workload_of_confluent("steady", target, **given)
                waits: list[float] = results["round_trips"]
                return waits

            results = in_turns(running | {"responder": responder}, options, once)
            for percent in (50, 99):
                values = {
                    name: [quantiles(each, n=100)[percent - 1] * 1e3 for each in rounds]
                    for name, rounds in results.items()
                }
                floor = median(values.pop("responder"))
                note = f"floor {floor:.3g}"
                yield pair(f"{cell}, p{percent}", "ms", values, at_most(0.5), floor=floor, note=note)


def catching_up(clusters: Clusters, options: Options, root: Path) -> Iterator[Pair]:
    """A follower whose files are gone, and the same files copied."""
    cell = "a follower without files catches up"
    if options.match not in cell:
        return
    rates: dict[str, list[float]] = {}
    of_copying: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    for name, cluster in clusters.items():
        announce(f"{name}: {cell}")
        load = Load(f"away-{next(NUMBERS)}", 6, 1024, 2_000 if options.small else 600_000, "all")
        running = _running({name: cluster})[name]
        create_topic(running, load.topic, load.partitions, SETTINGS)
        CLIENTS["confluent"].produce(running, load)
        caught_up = catch_up(cluster, load.topic, load.partitions, root / "copied")
        rates[name] = [caught_up.mb_a_second]
        of_copying[name] = [caught_up.mb_a_second / caught_up.copied_mb_a_second]
        costs[name] = [caught_up.cpu_seconds_a_gb]
        delete_topics(_running({name: cluster})[name], [load.topic])
    yield pair(cell, "MB/s", rates)
    yield pair(f"{cell}: part of the speed of cp", "of 1", of_copying)
    yield pair(f"{cell}: CPU of three nodes", "s/GB", costs)


def idle(clusters: Clusters, options: Options) -> Iterator[Pair]:
    topics, partitions = (1, 10) if options.small else (IDLE_TOPICS, IDLE_PARTITIONS)
    settle_s, idle_s = (0.2, 0.5) if options.small else (SETTLE_S, IDLE_S)
    cell = f"three nodes idle, {topics * partitions:,} partitions"
    if options.match not in cell:
        return
    announce(cell)
    running = _running(clusters)
    for cluster in running.values():
        names = [f"idle-{next(NUMBERS)}" for _ in range(topics)]
        create_topics(cluster, dict.fromkeys(names, partitions), SETTINGS)
    time.sleep(settle_s)
    began, before = time.monotonic(), {name: each.cpu_seconds() for name, each in running.items()}
    time.sleep(idle_s)
    spent = {name: each.cpu_seconds() - before[name] for name, each in running.items()}
    seconds = time.monotonic() - began
    yield pair(cell, "% of a core", {name: [100 * each / seconds] for name, each in spent.items()})


def fail_over(clusters: Clusters, options: Options) -> Iterator[Pair]:
    """kill -9 of a node that is not the active controller, until a survivor names other leaders for all."""
    topics, partitions = (1, 10) if options.small else (FAIL_OVER_TOPICS, FAIL_OVER_PARTITIONS)
    cell = f"a node with {topics * partitions:,} partitions is killed: others lead"
    if options.match not in cell:
        return
    times: dict[str, list[float]] = {}
    for name, cluster in clusters.items():
        announce(f"{name}: {cell}")
        names = [f"led-{next(NUMBERS)}" for _ in range(topics)]
        create_topics(_running({name: cluster})[name], dict.fromkeys(names, partitions), SETTINGS)
        time.sleep(0.2 if options.small else SETTLE_S)
        victim = next(each for each in cluster.voter_ids if each != cluster.leader())
        survivor = next(each for each in cluster.voter_ids if each != victim)
        with cluster.client(survivor) as client:
            killed_at = cluster.kill(victim)
            _wait_until_led_by_others(client, names, victim, killed_at + FAIL_OVER_DEADLINE_S)
        times[name] = [(time.monotonic() - killed_at) * 1000]
        cluster.spawn(victim)
        cluster.wait_until_active(len(cluster.ids))
    yield pair(cell, "ms", times)


def _wait_until_led_by_others(client: RawClient, names: list[str], victim: int, deadline: float) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=NO_UUID, name=each) for each in names])
    while True:
        answer = client.ask(request, METADATA, MetadataResponse)
        if all(0 <= one.leader_id != victim for topic in answer.topics for one in topic.partitions):
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"partitions are still led by node {victim}, which is dead")
        time.sleep(0.005)
