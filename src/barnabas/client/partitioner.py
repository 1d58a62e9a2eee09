"""Chooses a record's partition: by its key as all Kafka clients do, or the one whose batch is being filled.

Without keys, a topic's records go to one partition until a batch's worth of them was sent there, and then to
another, chosen at random among those with a leader: so batches are full, and partitions get equal shares.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.random import Random
from barnabas.records.columnar import partition_of

__all__ = ["StickyPartitioner", "partition_of"]


class StickyPartitioner:
    """The current partition for records without keys, by topic."""

    def __init__(self, random: Random, switch_bytes: int) -> None:
        self._random = random
        self._switch_bytes = switch_bytes
        self._stuck: dict[str, tuple[int, int]] = {}  # topic -> partition, bytes sent there

    def current(self, topic: str) -> int | None:
        """The topic's current partition; None if another one is to be chosen."""
        stuck = self._stuck.get(topic)
        return None if stuck is None else stuck[0]

    def switch(self, topic: str, available: Sequence[int]) -> int:
        """Choose one of these (at least one) as the current partition."""
        partition = available[self._random.below(len(available))]
        self._stuck[topic] = (partition, 0)
        return partition

    def sent(self, topic: str, size_bytes: int) -> None:
        """Count a record without a key; after enough bytes the next record gets another partition."""
        partition, sent_bytes = self._stuck[topic]
        sent_bytes += size_bytes
        if sent_bytes >= self._switch_bytes:
            del self._stuck[topic]
        else:
            self._stuck[topic] = (partition, sent_bytes)
