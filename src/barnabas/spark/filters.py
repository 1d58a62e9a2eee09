"""The filters of a query, used to skip ranges of offsets that need not be read. Pure.

Filters only prune: Spark still applies each of them, so some may prune less than they could. A lower bound on
the timestamp skips the records before the first one that reaches it, which all are older. It does not bound
the end, since records need not be in the order of their timestamps.
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
_NUMBERS = ("offset", "partition")  # columns with a lower and an upper bound


class Wanted(NamedTuple):
    """Bounds of the rows that a query wants; None: no bound."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_partition: int = 0
    end_partition: int = MAX_INT64
    offsets: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int = MAX_INT64
    since_ms: int | None = None

    def narrowed(self, offsets: OffsetRange) -> OffsetRange:
        """The part of a range that is wanted; it may be empty. Timestamps are not considered."""
        first, end = self.first_offset, self.end_offset
        if self.offsets is not None:
            inside = [each for each in self.offsets if offsets.start <= each < offsets.end]
            first, end = max(first, min(inside, default=end)), min(end, max(inside, default=-1) + 1)
        if not self._wants(offsets.topic, offsets.partition):
            end = offsets.start
        start = max(offsets.start, first)
        return offsets._replace(start=start, end=max(start, min(offsets.end, end)))

    def _wants(self, topic: str, partition: int) -> bool:
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and self.first_partition <= partition < self.end_partition
        )

    def since(self, offsets: OffsetRange, found: Mapping[TopicPartition, int]) -> OffsetRange:
        """The part of a range from the first record with a late enough timestamp on; -1 if there is none."""
        at = found.get(TopicPartition(offsets.topic, offsets.partition), offsets.start)
        start = offsets.end if at < 0 else min(max(offsets.start, at), offsets.end)
        return offsets._replace(start=start)


ANY = Wanted()


def wanted_by(filters: Iterable[Filter]) -> Wanted:
    """The bounds that follow from filters, all of which hold."""
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
            case LessThan((name,), value):
                wanted = _below(wanted, name, value)
            case LessThanOrEqual((name,), value):
                wanted = _below(wanted, name, value, at=True)
    return wanted


def _one_of(wanted: Wanted, name: str, values: tuple[Any, ...]) -> Wanted:
    field = {"topic": "topics", "partition": "partitions", "offset": "offsets"}.get(name)
    kind = str if name == "topic" else int
    if name == "timestamp":
        return _from(wanted, name, min(values)) if all(map(_is_time, values)) and values else wanted
    if field is None or not all(type(value) is kind for value in values):
        return wanted
    before = getattr(wanted, field)
    return _with(wanted, field, frozenset(values) if before is None else before & set(values))


def _from(wanted: Wanted, name: str, value: Any, *, above: bool = False) -> Wanted:
    if name in _NUMBERS and type(value) is int:
        first = f"first_{name}"
        return _with(wanted, first, max(getattr(wanted, first), value + above))
    if name == "timestamp" and _is_time(value):
        # records have whole milliseconds: at the time or after it
        whole, rest = divmod(value - _EPOCH, _MS)
        since_ms = whole + (1 if rest or above else 0)
        if since_ms >= 0:  # a record without a timestamp has -1, which no look-up finds
            return wanted._replace(since_ms=max(wanted.since_ms or 0, since_ms))
    return wanted


def _below(wanted: Wanted, name: str, value: Any, *, at: bool = False) -> Wanted:
    if name not in _NUMBERS or type(value) is not int:
        return wanted
    end = f"end_{name}"
    return _with(wanted, end, min(getattr(wanted, end), value + at))


def _with(wanted: Wanted, field: str, value: Any) -> Wanted:
    changed: dict[str, Any] = {field: value}
    return wanted._replace(**changed)


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None
