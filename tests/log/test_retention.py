from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.log.retention import UNLIMITED, Reason, RetentionPlan, SegmentFacts, plan_retention

NOW_MS = 100_000
HOUR_MS = 3_600_000


def segments(*sizes: int, timestamps: tuple[int, ...] | None = None) -> list[SegmentFacts]:
    """Segments of ten offsets each, of these sizes, as old as these timestamps say (now, unless told)."""
    times = timestamps or (NOW_MS,) * len(sizes)
    return [
        SegmentFacts(i * 10, i * 10 + (10 if size else 0), size, time, NOW_MS)
        for i, (size, time) in enumerate(zip(sizes, times, strict=True))
    ]


def plan(
    facts: list[SegmentFacts],
    *,
    retention_ms: int = UNLIMITED,
    retention_bytes: int = UNLIMITED,
    log_start_offset: int = 0,
    high_watermark: int | None = None,
) -> RetentionPlan:
    return plan_retention(
        facts,
        now_ms=NOW_MS,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        log_start_offset=log_start_offset,
        high_watermark=facts[-1].next_offset if high_watermark is None else high_watermark,
    )


def test_without_limits_nothing_goes() -> None:
    assert plan(segments(100, 100, 100, timestamps=(0, 0, 0))) == RetentionPlan((), (), False, 0)
    assert plan_retention(
        [], now_ms=0, retention_ms=0, retention_bytes=0, log_start_offset=7, high_watermark=7
    ) == RetentionPlan((), (), False, 7)


def test_segments_before_the_start_offset_go() -> None:
    facts = segments(100, 100, 100)
    assert plan(facts, log_start_offset=9).delete == ()
    assert plan(facts, log_start_offset=10).delete == (0,)
    assert plan(facts, log_start_offset=25) == RetentionPlan((0, 10), (Reason.START_OFFSET,) * 2, False, 25)
    # the active segment stays, though no record of it may be read
    assert plan(facts, log_start_offset=30).delete == (0, 10)


@pytest.mark.parametrize(
    ("retention_bytes", "delete"),
    [(300, ()), (201, ()), (200, (0,)), (101, (0,)), (100, (0, 10)), (1, (0, 10)), (0, (0, 10, 20))],
)
def test_size_deletes_while_the_excess_holds_a_whole_segment(
    retention_bytes: int, delete: tuple[int, ...]
) -> None:
    found = plan(segments(100, 100, 100), retention_bytes=retention_bytes)
    assert found.delete == delete
    assert set(found.reasons) <= {Reason.SIZE}
    assert found.roll_active == (len(delete) == 3)
    assert found.log_start_offset == 10 * len(delete)


def test_size_counts_only_what_the_start_offset_left() -> None:
    found = plan(segments(100, 100, 100), retention_bytes=200, log_start_offset=10)
    assert found == RetentionPlan((0,), (Reason.START_OFFSET,), False, 10)


def test_time_goes_by_the_newest_record() -> None:
    facts = segments(100, 100, 100, timestamps=(NOW_MS - 11, NOW_MS - 10, NOW_MS))
    assert plan(facts, retention_ms=10) == RetentionPlan((0,), (Reason.TIME,), False, 10)
    assert plan(facts, retention_ms=9).delete == (0, 10)
    assert plan(facts, retention_ms=0).delete == (0, 10)


def test_time_stops_at_the_first_segment_that_is_young_enough() -> None:
    assert plan(segments(1, 1, 1, timestamps=(0, NOW_MS, 0)), retention_ms=10).delete == (0,)
    assert plan(segments(1, 1, 1, timestamps=(NOW_MS + HOUR_MS, 0, 0)), retention_ms=10).delete == ()


def test_an_expired_active_segment_is_rolled_and_deleted() -> None:
    found = plan(segments(100, 100, timestamps=(0, 0)), retention_ms=10)
    assert found == RetentionPlan((0, 10), (Reason.TIME,) * 2, True, 20)


def test_an_empty_active_segment_stays() -> None:
    found = plan(segments(100, 0, timestamps=(0, -1)), retention_ms=10, retention_bytes=0)
    assert found == RetentionPlan((0,), (Reason.SIZE,), False, 10)
    assert plan(segments(0, timestamps=(-1,)), retention_ms=0, retention_bytes=0).delete == ()


def test_without_a_timestamp_the_file_tells_the_age() -> None:
    old = SegmentFacts(0, 10, 100, -1, NOW_MS - 11)
    young = SegmentFacts(10, 20, 100, -1, NOW_MS - 10)
    assert plan([old, young], retention_ms=10).delete == (0,)


def test_nothing_goes_that_the_high_watermark_has_not_passed() -> None:
    facts = segments(100, 100, 100, timestamps=(0, 0, 0))
    assert plan(facts, retention_ms=10, high_watermark=9).delete == ()
    assert plan(facts, retention_ms=10, high_watermark=10).delete == (0,)
    assert plan(facts, retention_bytes=0, high_watermark=29).delete == (0, 10)
    assert plan(facts, retention_bytes=0, high_watermark=30).roll_active


def test_each_segment_knows_its_reason() -> None:
    facts = segments(100, 100, 100, 100, timestamps=(NOW_MS, NOW_MS, 0, NOW_MS))
    found = plan(facts, log_start_offset=15, retention_bytes=200, retention_ms=10)
    assert found == RetentionPlan((0, 10, 20), (Reason.START_OFFSET, Reason.SIZE, Reason.TIME), False, 30)


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=6),
    last_is_empty=st.booleans(),
    ages=st.lists(st.integers(-5, 30), min_size=6, max_size=6),
    retention_ms=st.integers(-1, 25),
    retention_bytes=st.integers(-1, 150),
    start=st.integers(0, 60),
    behind=st.integers(0, 30),
)
def test_a_plan_keeps_the_promises(
    sizes: list[int],
    last_is_empty: bool,
    ages: list[int],
    retention_ms: int,
    retention_bytes: int,
    start: int,
    behind: int,
) -> None:
    if last_is_empty:
        sizes = [*sizes[:-1], 0]
    facts = segments(*sizes, timestamps=tuple(NOW_MS - age for age in ages[: len(sizes)]))
    end = facts[-1].next_offset
    start, high_watermark = min(start, end), max(0, end - behind)
    found = plan(
        facts,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        log_start_offset=start,
        high_watermark=high_watermark,
    )
    gone, left = facts[: len(found.delete)], facts[len(found.delete) :]
    assert found.delete == tuple(segment.base_offset for segment in gone)
    assert len(found.reasons) == len(gone)
    assert found.roll_active == (not left)
    assert found.log_start_offset == max(start, left[0].base_offset if left else end)
    assert all(segment.next_offset <= high_watermark for segment in gone)
    for i, reason in enumerate(found.reasons):
        if reason is Reason.START_OFFSET:
            assert facts[i].next_offset <= start
        elif reason is Reason.SIZE:
            assert sum(segment.size_bytes for segment in facts[i + 1 :]) >= retention_bytes >= 0
        else:
            assert NOW_MS - facts[i].largest_timestamp_ms > retention_ms >= 0
    if left and left[0].size_bytes and (left[1].base_offset if len(left) > 1 else end) <= high_watermark:
        # the next one stays because no rule asks for it
        assert retention_ms < 0 or NOW_MS - left[0].largest_timestamp_ms <= retention_ms
