"""Which partitions are under-replicated, under or at min.insync.replicas, offline or being reassigned.

As in Kafka, a partition that is being reassigned does not lack the replicas that are still to come, and one
without a leader counts as under min.insync.replicas, which is at most the number of its replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.client.admin import PartitionDescription, Reassignment, TopicDescription
from barnabas.client.metadata import TopicPartition


class Health(NamedTuple):
    """One partition."""

    at: TopicPartition
    partition: PartitionDescription
    min_in_sync: int | None  # None where the cluster does not tell
    move: Reassignment | None = None

    @property
    def needed(self) -> int | None:
        """How many replicas are to be in sync at least."""
        return None if self.min_in_sync is None else min(self.min_in_sync, len(self.partition.replicas))

    @property
    def is_offline(self) -> bool:
        """Whether nobody leads it."""
        return self.partition.leader < 0

    @property
    def is_under_replicated(self) -> bool:
        """Whether replicas are not in sync that were before, or should be."""
        coming = () if self.move is None else self.move.adding
        return len(self.partition.in_sync) < len(set(self.partition.replicas) - set(coming))

    @property
    def is_under_min(self) -> bool:
        """Whether acks=all is refused."""
        return self.is_offline or (self.needed is not None and len(self.partition.in_sync) < self.needed)

    @property
    def is_at_min(self) -> bool:
        """Whether one replica less in sync means that acks=all is refused."""
        return not self.is_offline and len(self.partition.in_sync) == self.needed

    @property
    def is_moving(self) -> bool:
        """Whether it is on its way to other brokers."""
        return self.move is not None

    @property
    def is_as_it_should_be(self) -> bool:
        """Whether there is nothing to be told of it."""
        return not (self.is_offline or self.is_under_replicated or self.is_under_min or self.is_moving)

    @property
    def states(self) -> list[str]:
        """What to tell people."""
        words = ["no leader"] if self.is_offline else ["under min ISR"] if self.is_under_min else []
        words += ["at min ISR"] if self.is_at_min and self.is_under_replicated else []
        words += ["under-replicated"] if self.is_under_replicated else []
        if self.move is not None:
            brokers = [f"+{each}" for each in self.move.adding] + [f"-{each}" for each in self.move.removing]
            words.append(" ".join(("moving", *brokers)))
        return words


class Counts(NamedTuple):
    """Partitions, by how they are."""

    total: int
    under_replicated: int
    under_min_isr: int
    at_min_isr: int
    offline: int
    reassigning: int | None  # None where the cluster does not tell

    @property
    def text(self) -> str:
        """A line for people."""
        states = (
            (self.offline, "without a leader"),
            (self.under_min_isr, "under min ISR"),
            (self.at_min_isr, "at min ISR"),
            (self.under_replicated, "under-replicated"),
            (self.reassigning, "moving"),
        )
        return ", ".join(f"{count:,} {what}" for count, what in states if count is not None)


def healths(
    topics: Mapping[str, TopicDescription],
    min_in_sync: Mapping[str, int],
    moves: Mapping[TopicPartition, Reassignment],
) -> Iterator[Health]:
    """All partitions, by topic and number."""
    for name, topic in sorted(topics.items()):
        for partition in topic.partitions:
            at = TopicPartition(name, partition.partition)
            yield Health(at, partition, min_in_sync.get(name), moves.get(at))


def counts_of(found: Iterable[Health]) -> Counts:
    """How many of each kind there are."""
    every = list(found)
    return Counts(
        len(every),
        sum(each.is_under_replicated for each in every),
        sum(each.is_under_min for each in every),
        sum(each.is_at_min for each in every),
        sum(each.is_offline for each in every),
        sum(each.is_moving for each in every),
    )
