"""Filters of a query, as far as they say which ranges of offsets need not be read. Pure.

Filters only prune: each of them is still Spark's to apply, so it does not matter that some prune less than
they could. A time prunes what is before the first record that is as young: all before that are older. It
says nothing about the end, since records need not be in the order of their times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from barnabas.client.metadata import TopicPartition
from barnabas.spark.option_values import MAX_INT64
from barnabas.spark.ranges import OffsetRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class Wanted(NamedTuple):
    """What rows can be at all that a query wants; None: any."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offsets: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int = MAX_INT64
    since_ms: int | None = None

    def narrowed(self, offsets: OffsetRange) -> OffsetRange:
        """What is left to read of a range; it may be empty. Times are not looked at."""
        first, end = self.first_offset, self.end_offset
        if self.offsets is not None:
            inside = [each for each in self.offsets if offsets.start <= each < offsets.end]
            first, end = max(first, min(inside, default=end)), min(end, max(inside, default=-1) + 1)
        if (self.topics is not None and offsets.topic not in self.topics) or (
            self.partitions is not None and offsets.partition not in self.partitions
        ):
            end = offsets.start
        start = max(offsets.start, first)
        return offsets._replace(start=start, end=max(start, min(offsets.end, end)))

    def since(self, offsets: OffsetRange, found: Mapping[TopicPartition, int]) -> OffsetRange:
        """What is left of it from the first record on that is young enough; -1 where none is."""
        at = found.get(TopicPartition(offsets.topic, offsets.partition), offsets.start)
        start = offsets.end if at < 0 else min(max(offsets.start, at), offsets.end)
        return offsets._replace(start=start)


ANY = Wanted()


def wanted_by(filters: Iterable[Filter]) -> Wanted:
    """What filters, all of which hold, leave over."""
    wanted = Wanted()
    for each in filters:
        match each:
            case EqualTo((name,), value) | EqualNullSafe((name,), value):
                wanted = _one_of(wanted, name, (value,))
            case In((name,), values):
                wanted = _one_of(wanted, name, tuple(values))
            case GreaterThanOrEqual((name,), value):
                wanted = _from(wanted, name, value)
            case GreaterThan((name,), value):
                wanted = _from(wanted, name, value, above=True)
            case LessThan(("offset",), int(value)):
                wanted = wanted._replace(end_offset=min(wanted.end_offset, value))
            case LessThanOrEqual(("offset",), int(value)):
                wanted = wanted._replace(end_offset=min(wanted.end_offset, value + 1))
    return wanted


def _one_of(wanted: Wanted, name: str, values: tuple[Any, ...]) -> Wanted:
    field = {"topic": "topics", "partition": "partitions", "offset": "offsets"}.get(name)
    kind = str if name == "topic" else int
    if name == "timestamp":
        return _from(wanted, name, min(values)) if all(map(_is_time, values)) and values else wanted
    if field is None or not all(type(value) is kind for value in values):
        return wanted
    before = getattr(wanted, field)
    left: dict[str, Any] = {field: frozenset(values) if before is None else before & set(values)}
    return wanted._replace(**left)


def _from(wanted: Wanted, name: str, value: Any, *, above: bool = False) -> Wanted:
    if name == "offset" and type(value) is int:
        return wanted._replace(first_offset=max(wanted.first_offset, value + above))
    if name == "timestamp" and _is_time(value):
        # records have whole milliseconds: those at the time or after it
        whole, rest = divmod(value - _EPOCH, _MS)
        since_ms = max(0, whole + (1 if rest or above else 0))
        return wanted._replace(since_ms=max(wanted.since_ms or 0, since_ms))
    return wanted


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None
