"""Which segments retention deletes: a pure plan, which the partition carries out.

Deletion takes whole segments from the front, in three passes, each over what the previous one left: those
wholly before the log's start offset; then, while the log is larger than `retention.bytes` by at least a whole
segment, the oldest; then those whose newest record is older than `retention.ms`. A pass stops at the first
segment that its rule keeps, so that there is never a hole. In all passes:

- A segment is deleted only when the high watermark has passed all of it.
- The last segment is deleted only when it holds data; then a new one is rolled in its place, so that the log
  is never without a segment.
- The log's start offset never moves back.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

UNLIMITED = -1


class SegmentFacts(NamedTuple):
    """The facts about one segment that the plan depends on."""

    base_offset: int
    next_offset: int  # after its last record; its base offset if it is empty
    size_bytes: int
    largest_timestamp_ms: int  # -1 if no record has one
    last_modified_ms: int  # of the file; replaces a missing timestamp


class Reason(enum.Enum):
    """Why a segment is deleted."""

    START_OFFSET = "it ends before the log's start offset"
    SIZE = "the log is larger than retention.bytes"
    TIME = "its newest record is older than retention.ms"


class RetentionPlan(NamedTuple):
    """The changes: roll first, then delete, then move the start offset."""

    delete: tuple[int, ...]  # base offsets, ascending
    reasons: tuple[Reason, ...]  # one for each of them
    roll_active: bool
    log_start_offset: int  # the new start offset


def plan_retention(
    segments: Sequence[SegmentFacts],
    *,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    log_start_offset: int,
    high_watermark: int,
) -> RetentionPlan:
    """The plan for `segments`: all of the log's, ascending.

    For a topic that is only compacted the caller passes both limits as unlimited (-1).
    """

    def before_start(index: int) -> bool:
        return index + 1 < len(segments) and segments[index + 1].base_offset <= log_start_offset

    def expired(index: int) -> bool:
        segment = segments[index]
        newest_ms = segment.largest_timestamp_ms
        if newest_ms < 0:
            newest_ms = segment.last_modified_ms
        return now_ms - newest_ms > retention_ms

    start = _prefix(segments, 0, high_watermark, before_start)
    size = start
    if retention_bytes >= 0:
        size = _oversized(segments, start, high_watermark, retention_bytes)
    time = size
    if retention_ms >= 0:
        time = _prefix(segments, size, high_watermark, expired)
    reasons = [Reason.START_OFFSET] * start + [Reason.SIZE] * (size - start) + [Reason.TIME] * (time - size)
    kept_from = segments[time].base_offset if time < len(segments) else _end_offset(segments)
    return RetentionPlan(
        delete=tuple(segment.base_offset for segment in segments[:time]),
        reasons=tuple(reasons),
        roll_active=bool(segments) and time == len(segments),
        log_start_offset=max(log_start_offset, kept_from),
    )


def _oversized(segments: Sequence[SegmentFacts], first: int, high_watermark: int, limit_bytes: int) -> int:
    excess_bytes = sum(segment.size_bytes for segment in segments[first:]) - limit_bytes
    if excess_bytes < 0:
        return first

    def fits_the_excess(index: int) -> bool:
        nonlocal excess_bytes
        if excess_bytes < segments[index].size_bytes:
            return False
        excess_bytes -= segments[index].size_bytes
        return True

    return _prefix(segments, first, high_watermark, fits_the_excess)


def _prefix(
    segments: Sequence[SegmentFacts], first: int, high_watermark: int, rule: Callable[[int], bool]
) -> int:
    """The index after the segments from `first` on that the rule, and safety, allow to delete."""
    index = first
    while index < len(segments):
        is_last = index + 1 == len(segments)
        end_offset = segments[index].next_offset if is_last else segments[index + 1].base_offset
        if high_watermark < end_offset or (is_last and segments[index].size_bytes == 0) or not rule(index):
            break
        index += 1
    return index


def _end_offset(segments: Sequence[SegmentFacts]) -> int:
    return segments[-1].next_offset if segments else 0
