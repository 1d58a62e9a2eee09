"""The plan of a cleaning: which part of a log to clean, and in which groups. Pure; `cleaning` carries it out.

A compacted log has a clean part, in which no key occurs twice, and a dirty part after it. A cleaning covers
whole segments of the dirty part, from the checkpoint of the last cleaning up to the first segment that may
not be cleaned: the active one, the one with the last stable offset, or one with records younger than
`min.compaction.lag.ms`, whichever comes first. Then everything before that is rewritten without superseded
records, segment by segment, small ones merged.

A cleaning is due when the dirty part is more than `min.cleanable.dirty.ratio` of the bytes, or when its
oldest records have waited for longer than `max.compaction.lag.ms`. Of several logs the dirtiest comes first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from barnabas.log.segment import MAX_RELATIVE_OFFSET

T = TypeVar("T")


class SegmentFacts(NamedTuple):
    """The facts about one segment that the plan depends on."""

    base_offset: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int
    largest_timestamp_ms: int  # the time of the file's last write if no record has a timestamp
    first_timestamp_ms: int  # the largest of its first batch; not positive if there is none


class Cleanable(NamedTuple):
    """The part of a log that a cleaning would cover."""

    first_dirty_offset: int
    first_uncleanable_offset: int  # the start of a segment
    is_checkpoint_stale: bool  # the checkpoint is impossible, and must be reset to the first dirty offset
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool  # some dirty records have waited for longer than max.compaction.lag.ms

    @property
    def ratio(self) -> float:
        """The dirty share of the bytes below the first uncleanable offset."""
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0


def plan_cleaning(
    segments: Sequence[SegmentFacts],
    *,
    checkpoint: int | None,
    start_offset: int,
    end_offset: int,
    last_stable_offset: int,
    now_ms: int,
    min_compaction_lag_ms: int,
    max_compaction_lag_ms: int,
) -> Cleanable:
    """The cleanable part of a log with these segments: all of them, ascending, the active one last.

    `checkpoint` is the end of the last cleaning, None if there was none.
    """
    dirty_offset, is_stale = _first_dirty(checkpoint, start_offset, end_offset)
    bases = [segment.base_offset for segment in segments]
    first_dirty = _floor(bases, dirty_offset)
    sealed = segments[first_dirty:-1]
    bound = min(last_stable_offset, bases[-1])
    if min_compaction_lag_ms > 0:
        youngest_ms = now_ms - min_compaction_lag_ms
        young = (one.base_offset for one in sealed if one.largest_timestamp_ms > youngest_ms)
        bound = min(bound, next(young, bound))
    # whole segments only; one with the bound in its middle waits for the next cleaning
    uncleanable = _floor(bases, max(bound, dirty_offset))
    waiting_ms = [one.first_timestamp_ms for one in sealed if one.first_timestamp_ms > 0]
    return Cleanable(
        first_dirty_offset=dirty_offset,
        first_uncleanable_offset=bases[uncleanable],
        is_checkpoint_stale=is_stale,
        clean_bytes=sum(one.size_bytes for one in segments if one.base_offset < dirty_offset),
        cleanable_bytes=sum(one.size_bytes for one in segments[first_dirty:uncleanable]),
        is_overdue=bool(waiting_ms) and min(waiting_ms) < now_ms - max(max_compaction_lag_ms, 0),
    )


def _first_dirty(checkpoint: int | None, start_offset: int, end_offset: int) -> tuple[int, bool]:
    """The start of the dirty part, and whether the checkpoint is stale: it may be before the start of the
    log, moved by retention, or beyond its end after a crash. Then the whole log counts as dirty."""
    if checkpoint is None:
        return start_offset, False
    if start_offset <= checkpoint <= end_offset:
        return checkpoint, False
    return start_offset, True


def _floor(bases: Sequence[int], offset: int) -> int:
    """The index of the segment that contains `offset`."""
    return max(0, bisect_right(bases, offset) - 1)


def is_due(cleanable: Cleanable, min_cleanable_ratio: float) -> bool:
    """Whether the log should be cleaned now."""
    if cleanable.is_overdue and cleanable.cleanable_bytes > 0:
        return True
    return cleanable.ratio > min_cleanable_ratio


def filthiest(candidates: Iterable[tuple[T, Cleanable]]) -> T | None:
    """The candidate with the largest dirty ratio, the first of equal ones; None if there is none."""
    best: tuple[T, Cleanable] | None = None
    for candidate in candidates:
        if best is None or candidate[1].ratio > best[1].ratio:
            best = candidate
    return None if best is None else best[0]


def group_segments(
    segments: Sequence[SegmentFacts],
    *,
    end_offset: int,
    first_uncleanable_offset: int,
    segment_bytes: int,
    index_bytes: int,
) -> list[list[int]]:
    """The segments with something below `end_offset`, by base offset, in groups that each become one segment.

    A group is a run of neighbours that fit into one segment even if no record is removed. A segment that
    alone is larger is a group of its own.
    """
    cleaned = [segment for segment in segments if segment.base_offset < end_offset]
    next_bases = [*(segment.base_offset for segment in cleaned), first_uncleanable_offset][1:]
    groups: list[list[int]] = []
    sizes = (0, 0, 0)
    limits = (segment_bytes, index_bytes, index_bytes)
    for segment, next_base in zip(cleaned, next_bases, strict=True):
        own = (segment.size_bytes, segment.index_bytes, segment.time_index_bytes)
        together = (sizes[0] + own[0], sizes[1] + own[1], sizes[2] + own[2])
        fits = bool(groups) and all(size <= limit for size, limit in zip(together, limits, strict=True))
        if fits and segment.size_bytes and next_base - 1 - groups[-1][0] > MAX_RELATIVE_OFFSET:
            fits = False
        if fits:
            groups[-1].append(segment.base_offset)
            sizes = together
        else:
            groups.append([segment.base_offset])
            sizes = own
    return groups
