"""Looks up offsets by time, or by special value (earliest, latest ...), with the partitions' leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.errors import BrokerNotReachable, NoSuchPartition, TimedOut, broker_error, wire_error_of
from barnabas.client.metadata import Leader, TopicPartition
from barnabas.core.errors import BarnabasError
from barnabas.core.network import ConnectionLost
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# the first version with a special value
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_CONSUMER = -1


class FoundOffset(NamedTuple):
    """An offset and the timestamp of its record; -1 if there is none at or after the time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool, timeout_s: float
) -> dict[TopicPartition, FoundOffset]:
    """The offset of each partition for its time or special value."""
    clock = cluster.clock
    deadline = clock.monotonic() + timeout_s
    for partition in wanted:
        topic = await cluster.topic(partition.topic, deadline - clock.monotonic())
        if partition.partition not in topic.leaders:
            raise NoSuchPartition(f"{topic.name} has {len(topic.leaders)} partitions, not {partition}")
    lookup = _Lookup(cluster, wanted, read_committed=read_committed)
    attempts = 0
    while lookup.open:
        await lookup.ask_leaders(deadline - clock.monotonic())
        if not lookup.open:
            break
        attempts += 1
        if clock.monotonic() >= deadline:
            raise lookup.failure or TimedOut(f"no offsets within {timeout_s:g} s: no leader is known")
        cluster.refresh_soon()
        await clock.sleep(min(cluster.backoff.seconds(attempts), max(0.0, deadline - clock.monotonic())))
    return lookup.found


class _Lookup:
    """The state of a look-up: partitions that are open, and results."""

    def __init__(
        self, cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> None:
        self.open = {TopicPartition(*partition): at for partition, at in wanted.items()}
        self.found: dict[TopicPartition, FoundOffset] = {}
        self.failure: BarnabasError | None = None
        self._cluster = cluster
        self._isolation_level = int(read_committed)

    async def ask_leaders(self, timeout_s: float) -> None:
        by_node: dict[int, dict[TopicPartition, Leader]] = {}
        for partition in self.open:
            leader = self._cluster.leader(*partition)
            if leader is not None:
                by_node.setdefault(leader.node_id, {})[partition] = leader
        await asyncio.gather(*(self._ask(node, leaders, timeout_s) for node, leaders in by_node.items()))

    async def _ask(self, node_id: int, leaders: Mapping[TopicPartition, Leader], timeout_s: float) -> None:
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, partition), leader in leaders.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=partition,
                    current_leader_epoch=leader.epoch,
                    timestamp=self.open[TopicPartition(name, partition)],
                )
            )
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=self._isolation_level,
            topics=list(topics.values()),
            timeout_ms=int(max(0.0, timeout_s) * 1000),
        )
        needed = max(_SINCE.get(self.open[partition], 0) for partition in leaders)
        try:
            connection = await self._cluster.connect(node_id)
            if connection.versions.choose(ListOffsetsRequest) < needed:
                raise NotSpoken(f"the broker is too old for this kind of offset (ListOffsets {needed})")
            self._take(await connection.ask(request, ListOffsetsResponse))
        except (ConnectionLost, TimedOut, BrokerNotReachable) as error:
            self.failure = error

    def _take(self, response: ListOffsetsResponse) -> None:
        for topic in response.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.name, answer.partition_index)
                if answer.error_code:
                    error = wire_error_of(answer.error_code)
                    self.failure = broker_error(error, f"no offset of {partition}")
                    if not error.retriable:
                        raise self.failure
                elif self.open.pop(partition, None) is not None:
                    self.found[partition] = FoundOffset(answer.offset, answer.timestamp, answer.leader_epoch)
