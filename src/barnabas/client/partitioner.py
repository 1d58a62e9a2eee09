"""Which partition a record goes to: by its key as all Kafka clients do it, or wherever a batch is filling.

Without a key a topic's records stick to one partition until a batch's worth of them went there, and then to
another, chosen at random among those that have a leader: full batches, and every partition its share.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.random import Random
from barnabas.records.columnar import partition_of

__all__ = ["StickyPartitioner", "partition_of"]


class StickyPartitioner:
    """Where keyless records go, by topic."""

    def __init__(self, random: Random, switch_bytes: int) -> None:
        self._random = random
        self._switch_bytes = switch_bytes
        self._stuck: dict[str, tuple[int, int]] = {}  # topic -> partition, bytes sent there

    def current(self, topic: str) -> int | None:
        """The partition that the topic's records stick to; None where it is time for another one."""
        stuck = self._stuck.get(topic)
        return None if stuck is None else stuck[0]

    def switch(self, topic: str, available: Sequence[int]) -> int:
        """Stick to one of these (at least one) from now on."""
        partition = available[self._random.below(len(available))]
        self._stuck[topic] = (partition, 0)
        return partition

    def sent(self, topic: str, size_bytes: int) -> None:
        """Count a keyless record; enough of them make the next one go elsewhere."""
        partition, sent_bytes = self._stuck[topic]
        sent_bytes += size_bytes
        if sent_bytes >= self._switch_bytes:
            del self._stuck[topic]
        else:
            self._stuck[topic] = (partition, sent_bytes)
