"""A histogram of durations: buckets from a microsecond on, four to an octave (a factor of two).

A bucket's number is the bit length of the fourth power of the microseconds: two multiplications, in place of
a search. Quantiles are computed on request, over the last minute or two.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import nan

BUCKETS = 256  # up to 2^64 microseconds, far beyond any duration
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
WINDOW_SECONDS = 60.0


class Histogram:
    """Counts of durations by bucket, and their sum. The hot path has the two lines of `observe` inline."""

    __slots__ = ("_marks", "counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.seconds = 0.0
        # (time, copy of the counts) pairs; the window begins at the older one
        self._marks: list[tuple[float, list[int]]] = []

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bucket_of(seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def at_most(self, octave: int) -> int:
        """The number of durations below 2^octave microseconds."""
        return sum(self.counts[: 4 * octave + 1])

    def recent_quantiles(self, now: float, quantiles: Iterable[float] = QUANTILES) -> list[float]:
        """Quantiles of the last minute or two, in seconds; nan without any sample. `now` is monotonic."""
        if not self._marks or now - self._marks[-1][0] >= WINDOW_SECONDS:
            self._marks = [*self._marks[-1:], (now, self.counts.copy())]
        # at first there is no older mark: everything counted so far is recent
        before = self._marks[0][1] if len(self._marks) > 1 else [0] * BUCKETS
        return quantiles_of([new - old for new, old in zip(self.counts, before, strict=True)], quantiles)


def bucket_of(seconds: float) -> int:
    """The bucket of a duration; the last one has no upper end."""
    square = seconds * seconds * 1e12
    return min(int(square * square).bit_length(), BUCKETS - 1)


def quantiles_of(counts: list[int], quantiles: Iterable[float]) -> list[float]:
    """Quantiles in seconds: the upper end of the bucket in which each lies, at most a fifth too much."""
    total = sum(counts)
    if total == 0:
        return [nan for _ in quantiles]
    return [_upper_end(counts, quantile * total) for quantile in quantiles]


def _upper_end(counts: list[int], rank: float) -> float:
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if count and seen >= rank:
            return float(2.0 ** (bucket / 4)) / 1e6
    raise AssertionError("a rank beyond the last observation")
