"""What the table of a local cluster shows of its nodes, as a client is told: leaders, lag, rates, sizes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from barnabas.cli.clusters.health import Counts, Health
from barnabas.cli.clusters.partitions import partitions_of
from barnabas.cli.clusters.wholeness import quorum_of
from barnabas.cli.connecting import Session
from barnabas.cli.local_cluster.plan import ClusterPlan, NodePlan
from barnabas.cli.local_cluster.state import NodeState
from barnabas.cli.output import bytes_text
from barnabas.client.admin import QuorumDescription
from barnabas.client.errors import BrokerError, BrokerNotReachable, TimedOut
from barnabas.client.metadata import TopicPartition
from barnabas.core.network import ConnectionLost
from barnabas.protocol.channel import NotSpoken

K = TypeVar("K")
V = TypeVar("V")

# as narrow as can be: all of it fits a terminal of 80 columns
COLUMNS = (
    "node",
    "role",
    "state",
    "leads",
    "replicas",
    "unsynced",
    "behind",
    "records/s",
    "size",
    "restarts",
)
_MOST_REPLICAS = 5000  # of which ends are asked
_NO_ANSWER = (BrokerNotReachable, ConnectionLost, TimedOut, BrokerError, NotSpoken)

Ends = Mapping[tuple[int, TopicPartition], int]  # by broker


class Facts(NamedTuple):
    """A cluster at a moment; `ends` are those of all replicas, none where there are too many."""

    at_s: float
    every: Sequence[Health]
    counts: Counts
    brokers: frozenset[int]
    quorum: QuorumDescription | None
    ends: Ends
    sizes: Mapping[int, int]


async def look(session: Session) -> Facts | None:
    """Ask the cluster; None where nobody answers."""
    try:
        partitions = await partitions_of(session.admin)
        cluster = await session.admin.describe_cluster()
    except _NO_ANSWER:
        return None
    brokers = frozenset(broker.node_id for broker in cluster.brokers)
    held: dict[int, list[TopicPartition]] = {each: [] for each in brokers}
    for health in partitions.every:
        for broker in brokers.intersection(health.partition.replicas):
            held[broker].append(health.at)
    is_small = sum(map(len, held.values())) <= _MOST_REPLICAS
    ends = await _gathered(_ends(session, broker, found) for broker, found in held.items() if is_small)
    sizes = await _gathered(_size(session, broker) for broker in brokers)
    quorum = await quorum_of(session.admin)
    now_s = session.clock.monotonic()
    return Facts(now_s, partitions.every, partitions.counts, brokers, quorum, ends, sizes)


async def _gathered(asking: Iterable[Coroutine[None, None, dict[K, V]]]) -> dict[K, V]:
    return {key: value for answer in await asyncio.gather(*asking) for key, value in answer.items()}


async def _ends(
    session: Session, broker: int, partitions: list[TopicPartition]
) -> dict[tuple[int, TopicPartition], int]:
    try:
        answers = await session.admin.replica_ends(broker, partitions) if partitions else {}
    except _NO_ANSWER:
        return {}
    return {(broker, at): end for at, end in answers.items() if isinstance(end, int)}


async def _size(session: Session, broker: int) -> dict[int, int]:
    try:
        directories = (await session.admin.describe_log_dirs([broker])).get(broker, {})
    except _NO_ANSWER:
        return {}
    return {broker: sum(log.size_bytes for each in directories.values() for log in each.replicas.values())}


def rows(
    plan: ClusterPlan, states: Mapping[int, NodeState], now: Facts | None, before: Facts | None
) -> list[tuple[object, ...]]:
    """The lines of the table, a node each; what is not known is None."""
    return [_row(node, states.get(node.node_id, NodeState()), now, before) for node in plan.nodes]


def _row(node: NodePlan, state: NodeState, now: Facts | None, before: Facts | None) -> tuple[object, ...]:
    known: tuple[object, ...] = (None,) * 6
    if now is not None:
        known = _known(node.node_id, now, before)
    role = _role(node, None if now is None else now.quorum)
    return (node.node_id, role, state.told, *known, state.restarts)


def _known(node_id: int, now: Facts, before: Facts | None) -> tuple[object, ...]:
    led = [each for each in now.every if each.partition.leader == node_id]
    held = [each for each in now.every if node_id in each.partition.replicas]
    missing = sum(node_id not in each.partition.in_sync for each in held)
    size = now.sizes.get(node_id)
    return (
        len(led),
        len(held),
        missing,
        _behind(node_id, held, now.ends),
        _rate(node_id, led, now, before),
        None if size is None else bytes_text(size),
    )


def _role(node: NodePlan, quorum: QuorumDescription | None) -> str:
    """All nodes are brokers; this is what each is in the quorum."""
    if not node.is_voter:
        return "broker"
    if quorum is not None and quorum.leader_id == node.node_id:
        return "active"
    if quorum is not None and node.node_id not in [each.node_id for each in quorum.voters]:
        return "observer"
    return "voter"


def _behind(node_id: int, held: Iterable[Health], ends: Ends) -> int | None:
    """How many records the node lacks that its partitions' leaders have."""
    lags = []
    for each in held:
        leader, own = ends.get((each.partition.leader, each.at)), ends.get((node_id, each.at))
        if leader is not None and own is not None:
            lags.append(max(0, leader - own))
    return sum(lags) if lags else None


def _rate(node_id: int, led: Iterable[Health], now: Facts, before: Facts | None) -> int | None:
    """How many records a second the partitions that the node leads get."""
    if before is None or now.at_s <= before.at_s:
        return None
    written, leaders = 0, Counter[bool]()
    for each in led:
        end = now.ends.get((node_id, each.at))
        was = max((before.ends.get((broker, each.at), -1) for broker in each.partition.replicas), default=-1)
        is_known = end is not None and was >= 0
        leaders[is_known] += 1
        if end is not None and is_known:
            written += max(0, end - was)
    if leaders[False] and not leaders[True]:
        return None
    return round(written / (now.at_s - before.at_s))
