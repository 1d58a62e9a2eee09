"""Filters say what need not be read, and never say too much."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from barnabas.client.metadata import TopicPartition
from barnabas.spark.filters import ANY, wanted_by
from barnabas.spark.ranges import OffsetRange

WHOLE = OffsetRange("a", 1, 100, 200)
TIME = datetime(2024, 1, 1, tzinfo=UTC)
TIME_MS = 1_704_067_200_000


@pytest.mark.parametrize(
    ("filters", "start", "end"),
    [
        ([], 100, 200),
        ([EqualTo(("topic",), "a"), EqualTo(("partition",), 1)], 100, 200),
        ([EqualTo(("topic",), "b")], 100, 100),
        ([In(("topic",), ("b", "c"))], 100, 100),
        ([In(("partition",), (0, 1)), In(("partition",), (1, 2))], 100, 200),
        ([In(("partition",), (0, 1)), In(("partition",), (2, 3))], 100, 100),
        ([EqualNullSafe(("partition",), 2)], 100, 100),
        ([GreaterThanOrEqual(("partition",), 1), LessThanOrEqual(("partition",), 1)], 100, 200),
        ([GreaterThan(("partition",), 0), LessThan(("partition",), 2)], 100, 200),
        ([GreaterThan(("partition",), 1)], 100, 100),
        ([LessThan(("partition",), 1)], 100, 100),
        ([GreaterThan(("offset",), 149)], 150, 200),
        ([GreaterThanOrEqual(("offset",), 150), LessThan(("offset",), 160)], 150, 160),
        ([LessThanOrEqual(("offset",), 160)], 100, 161),
        ([LessThan(("offset",), 50)], 100, 100),
        ([GreaterThan(("offset",), 500)], 500 + 1, 500 + 1),
        ([EqualTo(("offset",), 120)], 120, 121),
        ([In(("offset",), (5, 120, 140, 999))], 120, 141),
        ([In(("offset",), (5, 999)), IsNotNull(("offset",))], 200, 200),
        # what is not understood prunes nothing
        ([EqualTo(("partition",), None), EqualTo(("partition",), 1.5), EqualTo(("topic",), 3)], 100, 200),
        ([LessThan(("partition",), 0.5), GreaterThan(("topic",), "b"), LessThan(("value",), b"")], 100, 200),
        ([Not(EqualTo(("topic",), "a")), StringStartsWith(("topic",), "b")], 100, 200),
        ([EqualTo(("headers", "key"), "x"), EqualTo(("value",), b"")], 100, 200),
        (
            [LessThan(("timestamp",), TIME), GreaterThanOrEqual(("timestamp",), TIME.replace(tzinfo=None))],
            100,
            200,
        ),
    ],
)
def test_offsets(filters: list[Filter], start: int, end: int) -> None:
    left = wanted_by(filters).narrowed(WHOLE)
    assert left.size == end - start
    if left.size:
        assert left == ("a", 1, start, end)


@pytest.mark.parametrize(
    ("filters", "since_ms"),
    [
        ([GreaterThanOrEqual(("timestamp",), TIME)], TIME_MS),
        ([GreaterThan(("timestamp",), TIME)], TIME_MS + 1),
        ([EqualTo(("timestamp",), TIME)], TIME_MS),
        ([In(("timestamp",), (TIME + timedelta(hours=1), TIME))], TIME_MS),
        ([GreaterThanOrEqual(("timestamp",), TIME + timedelta(microseconds=1))], TIME_MS + 1),
        ([GreaterThan(("timestamp",), TIME + timedelta(microseconds=1))], TIME_MS + 1),
        ([GreaterThanOrEqual(("timestamp",), TIME.astimezone(timezone(timedelta(hours=5))))], TIME_MS),
        ([GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC))], None),
        ([GreaterThanOrEqual(("timestamp",), datetime(1970, 1, 1, tzinfo=UTC))], 0),
        ([LessThan(("timestamp",), TIME), LessThanOrEqual(("timestamp",), TIME)], None),
        (
            [GreaterThan(("timestamp",), TIME), GreaterThan(("timestamp",), TIME - timedelta(days=1))],
            TIME_MS + 1,
        ),
    ],
)
def test_times(filters: list[Any], since_ms: int | None) -> None:
    assert wanted_by(filters).since_ms == since_ms


@pytest.mark.parametrize(("found", "start"), [(150, 150), (50, 100), (-1, 200), (250, 200)])
def test_a_time_prunes_the_start(found: int, start: int) -> None:
    assert ANY.since(WHOLE, {TopicPartition("a", 1): found}) == ("a", 1, start, 200)
