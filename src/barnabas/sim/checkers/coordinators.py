"""Which node coordinates a group, by the metadata that was published first. Not a checker: what some of them
have in common.

A node that was deposed does not know it until it has the metadata: cut off from the others, it goes on
answering clients that reach it. What it writes is never committed, so that no commit is acknowledged. But its
heartbeats, and the offsets that it tells, are those of a coordinator of before, as in Kafka: they promise
nothing. An answer counts for certain if the node that gave it was the leader from the question to the answer.

Where nothing is replicated there is one node, which is never deposed.
"""

from __future__ import annotations

from barnabas.broker.coordinators.coordinator import partition_for
from barnabas.metadata.names import CONSUMER_OFFSETS
from barnabas.sim.history import History
from barnabas.sim.replication.events import PartitionSeen


class GroupCoordinators:
    """The leaders of the partitions of `__consumer_offsets`, as time goes on."""

    def __init__(self, history: History) -> None:
        self._leaders: dict[int, list[tuple[float, int]]] = {}
        for event in history.of(PartitionSeen):
            if event.topic == CONSUMER_OFFSETS:
                self._leaders.setdefault(event.partition, []).append((event.at, event.leader))

    def partition_of(self, group: str) -> int:
        """The partition that a group belongs to; -1 where nothing is replicated."""
        return partition_for(group, len(self._leaders)) if self._leaders else -1

    def may_be_deposed(self, group: str, node: int, since: float, until: float) -> bool:
        """Whether another node, or none, coordinated a group at some moment between the two."""
        if not self._leaders:
            return False
        leaders = self._leaders[self.partition_of(group)]
        at_first = [leader for at, leader in leaders if at < since][-1:]
        meanwhile = [leader for at, leader in leaders if since <= at <= until]
        return any(leader != node for leader in (*at_first, *meanwhile))
