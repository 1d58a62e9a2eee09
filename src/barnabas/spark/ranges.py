"""Offset ranges, and how they are cut into the partitions that Spark reads in parallel. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heapreplace
from typing import NamedTuple


class OffsetRange(NamedTuple):
    """Offsets of one partition of a topic, `end` excluded; there may be gaps in them."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def cut(
    ranges: Sequence[OffsetRange], min_pieces: int | None = None, max_size: int | None = None
) -> list[OffsetRange]:
    """The same offsets in order, in at least `min_pieces` (if there are as many offsets), none larger than
    `max_size`.

    Without limits each range is one piece; empty ranges are left out. Pieces of a range differ by one at
    most.
    """
    left = [each for each in ranges if each.size > 0]
    counts = [1 if max_size is None else -(-each.size // max_size) for each in left]
    wanted = min(min_pieces or 0, sum(each.size for each in left))
    # repeatedly, one more piece for the range with the largest pieces
    largest = [
        (-each.size / count, index) for index, (each, count) in enumerate(zip(left, counts, strict=True))
    ]
    heapify(largest)
    for _ in range(wanted - sum(counts)):
        index = largest[0][1]
        counts[index] += 1
        heapreplace(largest, (-left[index].size / counts[index], index))
    return [piece for each, count in zip(left, counts, strict=True) for piece in _pieces(each, count)]


def _pieces(whole: OffsetRange, count: int) -> Iterator[OffsetRange]:
    for number in range(count):
        start = whole.start + whole.size * number // count
        yield whole._replace(start=start, end=whole.start + whole.size * (number + 1) // count)
