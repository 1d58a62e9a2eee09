"""Chooses how much of the available data goes into the next micro-batch. Pure.

Both rules are those of Spark's own connector. A limit is shared among partitions in proportion to their new
offsets, and a partition with any gets at least one record, so that small ones do not starve. A batch below
the minimum waits until there is enough, or until the last one was long enough ago.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.metadata import TopicPartition
from barnabas.spark.offsets import Offsets


def admit(begin: Offsets, latest: Offsets, limit: int | None) -> dict[TopicPartition, int]:
    """The end offsets of a batch of at most about `limit` offsets that begins at `begin`."""
    sizes = {each: end - begin[each] for each, end in latest.items() if end > begin[each]}
    total = sum(sizes.values())
    if limit is None or total <= limit:
        return dict(latest)
    shares = {each: max(1, limit * size // total) for each, size in sizes.items()}
    return {each: begin[each] + shares[each] if each in shares else end for each, end in latest.items()}


class Pacing:
    """Decides whether a batch may start already."""

    def __init__(self, min_offsets: int, max_delay_s: float) -> None:
        self._min_offsets, self._max_delay_s = min_offsets, max_delay_s
        self._started_at: float | None = None  # the first batch does not wait

    def is_too_early(self, begin: Offsets, latest: Mapping[TopicPartition, int], now: float) -> bool:
        """Whether to go on waiting; if not, the next delay is counted from now."""
        waiting = sum(max(0, end - begin[each]) for each, end in latest.items())
        is_due = self._started_at is None or now - self._started_at >= self._max_delay_s
        if not is_due and waiting < self._min_offsets:
            return True
        self._started_at = now
        return False
