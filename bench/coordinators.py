"""Coordinators of three nodes beside three of Apache Kafka, their internal topics on all of them.

Offset commits and transactions a second; and how long a group waits for its next commit when its
coordinator is killed with -9: while its partition holds nothing else, while it holds a hundred thousand
offsets, and while it holds a thousand groups with a member each as well, all of which the next coordinator
has to load.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from barnabas.broker.coordinators.coordinator import partition_for
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitResponse
from bench.clients import workload_of_confluent
from bench.groups import committed
from bench.members import COMMIT, FIND, commit_of, join_groups
from bench.options import Options
from bench.report import Pair, at_least, at_most
from bench.scratch import scratch
from bench.sidebyside import announce, in_turns, pair
from bench.systems import KAFKA_JVM, Running
from bench.topics import create_topic
from tests.support.combined_cluster import CombinedCluster

NEEDED_BYTES = 4 << 30
SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
)
REPLICAS, OFFSETS_PARTITIONS = 3, 50
TOPIC, GROUP = "read-by-groups", "taken-over"
DEADLINE_S = 120.0
POLL_S = 0.002


def run(options: Options) -> list[Pair]:
    small = options.small
    with scratch(0 if small else NEEDED_BYTES) as root, contextlib.ExitStack() as life:
        announce("nothing yet: starting three nodes of each")
        clusters = {
            name: life.enter_context(CombinedCluster(name, root / name, settings=SETTINGS, jvm=KAFKA_JVM))
            for name in options.systems
        }
        running = {name: _running(name, cluster) for name, cluster in clusters.items()}
        for broker in running.values():
            create_topic(broker, TOPIC, 10 if small else 1000)
            committed(broker, 4 if small else 100, 50 if small else 40_000)
        pairs = [*commits_a_second(running, options), *transactions_a_second(running, options)]
        pairs += next_commits(clusters, options)
    return pairs


def _running(name: str, cluster: CombinedCluster) -> Running:
    first, *others = cluster.pids
    return Running(name, cluster.bootstrap, first, 0.0, 0.0, tuple(others), REPLICAS)


def commits_a_second(running: dict[str, Running], options: Options) -> Iterator[Pair]:
    connections, count = (4, 100) if options.small else (100, 40_000)
    title = f"offset commits a second, three nodes, {connections} at a time"
    announce(title)
    costs: dict[str, list[float]] = {name: [] for name in running}

    def once(broker: Running) -> float:
        before = broker.cpu_seconds()
        seconds = committed(broker, connections, count)
        costs[broker.name].append((broker.cpu_seconds() - before) / count * 1e6)
        return count / seconds

    yield pair(title, "commits/s", in_turns(running, options, once), at_least(1.0))
    yield pair(f"{title}: CPU of three nodes", "µs each", costs, at_most(1.0))


def transactions_a_second(running: dict[str, Running], options: Options) -> Iterator[Pair]:
    title = "transactions of one record a second, three nodes"
    announce(title)
    count, warm_up = (5, 2) if options.small else (1000, 500)
    given = {"topic": TOPIC, "records": 1, "count": count, "warm_up": warm_up}

    def once(broker: Running) -> float:
        results, _ = workload_of_confluent("transactions", broker, transactional_id="bench", **given)
        seconds: float = results["seconds"]
        return count / seconds

    yield pair(title, "/s", in_turns(running, options, once), at_least(1.0))


def next_commits(clusters: dict[str, CombinedCluster], options: Options) -> Iterator[Pair]:
    offsets, groups = (1000, 10) if options.small else (100_000, 1000)
    fills: list[tuple[str, Callable[[CombinedCluster], None]]] = [
        ("0 offsets", lambda cluster: None),
        (f"{offsets:,} offsets", partial(_commit_offsets, offsets=offsets)),
        (f"those and {groups:,} groups with members", partial(_join_groups, count=groups)),
    ]
    rounds = 1 if options.small else options.rounds
    for beside, fill in fills:
        title = f"coordinator killed: a group's next commit, beside {beside}"
        announce(title)
        for cluster in clusters.values():
            fill(cluster)
        yield pair(
            title,
            "ms",
            {name: [_next_commit_ms(cluster) for _ in range(rounds)] for name, cluster in clusters.items()},
            at_most(1.0),
        )


def _neighbours(prefix: str) -> Iterator[str]:
    """Names of groups in the same partition of the internal topic as the group that is measured."""
    partition = partition_for(GROUP, OFFSETS_PARTITIONS)
    names = (f"{prefix}-{number}" for number in itertools.count())
    return (name for name in names if partition_for(name, OFFSETS_PARTITIONS) == partition)


def _commit_offsets(cluster: CombinedCluster, offsets: int) -> None:
    numbers = range(10 if offsets <= 1000 else 1000)
    for name in itertools.islice(_neighbours("offsets"), offsets // len(numbers)):
        _commit(cluster, name, list(numbers), _coordinator(cluster, name))


def _join_groups(cluster: CombinedCluster, count: int) -> None:
    names = list(itertools.islice(_neighbours("members"), count))
    node_id = _coordinator(cluster, GROUP)
    address = f"{cluster.network.host(node_id)}:{cluster.ports[node_id]}"
    asyncio.run(join_groups(address, names, TOPIC))


def _next_commit_ms(cluster: CombinedCluster) -> float:
    """Milliseconds from kill -9 of a group's coordinator to the next commit, asked again and again."""
    victim = _coordinator(cluster, GROUP)
    _commit(cluster, GROUP, [0], victim)
    killed_at = cluster.kill(victim)
    _commit(cluster, GROUP, [0], _coordinator(cluster, GROUP, but=victim))
    milliseconds = (time.monotonic() - killed_at) * 1000
    cluster.spawn(victim)
    cluster.wait_until_active(len(cluster.ids))
    return milliseconds


def _coordinator(cluster: CombinedCluster, group: str, but: int = -1) -> int:
    """The node that coordinates a group, once some other node than `but` does."""
    request = FindCoordinatorRequest(key=group, key_type=0)
    deadline = time.monotonic() + DEADLINE_S
    node_id = next(each for each in cluster.ids if each != but)
    while time.monotonic() < deadline:
        with cluster.client(node_id) as client:
            answer = client.ask(request, FIND, FindCoordinatorResponse)
        if not answer.error_code and answer.node_id != but:
            return answer.node_id
        time.sleep(POLL_S)
    raise AssertionError(f"{group} has no coordinator")


def _commit(cluster: CombinedCluster, group: str, partitions: list[int], node_id: int) -> None:
    """Commit, asking again until it is taken, wherever the coordinator is by then."""
    request = commit_of(group, TOPIC, partitions, 1)
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(ConnectionError, EOFError),
            cluster.client(node_id) as client,
        ):
            answer = client.ask(request, COMMIT, OffsetCommitResponse)
            if not any(one.error_code for each in answer.topics for one in each.partitions):
                return
        time.sleep(POLL_S)
    raise AssertionError(f"no commit of {group} is taken")
