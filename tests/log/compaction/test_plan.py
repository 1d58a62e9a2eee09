"""What of a log is cleanable, when a round is due, and which segments become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.log.compaction.plan import (
    Cleanable,
    SegmentFacts,
    filthiest,
    group_segments,
    is_due,
    plan_cleaning,
)
from barnabas.log.segment import MAX_RELATIVE_OFFSET

NEVER_MS = 2**63 - 1
NOW_MS = 1_000_000


def segment(
    base: int, size: int = 100, *, largest_ms: int = 0, first_ms: int = 0, index: int = 0
) -> SegmentFacts:
    return SegmentFacts(base, size, index, index, largest_ms, first_ms)


# four sealed segments and an empty active one
LOG = [segment(0), segment(10), segment(20), segment(30), segment(40, 0)]


def plan(segments: list[SegmentFacts] = LOG, **facts: int | None) -> Cleanable:
    settings: dict[str, int | None] = {
        "checkpoint": None,
        "start_offset": 0,
        "end_offset": 40,
        "last_stable_offset": 40,
        "now_ms": NOW_MS,
        "min_compaction_lag_ms": 0,
        "max_compaction_lag_ms": NEVER_MS,
        **facts,
    }
    return plan_cleaning(segments, **settings)  # type: ignore[arg-type]


class TestBounds:
    def test_everything_but_the_active_segment(self) -> None:
        assert plan() == Cleanable(0, 40, False, 0, 400, False)
        assert plan().ratio == 1.0

    def test_from_the_checkpoint_on(self) -> None:
        assert plan(checkpoint=20) == Cleanable(20, 40, False, 200, 200, False)
        assert plan(checkpoint=20).ratio == 0.5

    def test_a_segment_that_the_last_round_ended_in_is_both_clean_and_dirty(self) -> None:
        assert plan(checkpoint=25) == Cleanable(25, 40, False, 300, 200, False)

    def test_whole_segments_below_the_last_stable_offset(self) -> None:
        assert plan(last_stable_offset=29) == Cleanable(0, 20, False, 0, 200, False)
        assert plan(last_stable_offset=30).first_uncleanable_offset == 30
        assert plan(last_stable_offset=0) == Cleanable(0, 0, False, 0, 0, False)

    def test_nothing_where_the_last_stable_offset_is_below_the_checkpoint(self) -> None:
        found = plan(checkpoint=25, last_stable_offset=5)
        assert (found.first_dirty_offset, found.cleanable_bytes) == (25, 0)

    def test_a_checkpoint_that_retention_has_left_behind(self) -> None:
        assert plan(checkpoint=5, start_offset=12) == Cleanable(12, 40, True, 200, 300, False)

    def test_a_checkpoint_beyond_the_end(self) -> None:
        assert plan(checkpoint=41) == Cleanable(0, 40, True, 0, 400, False)
        assert not plan(checkpoint=40).is_checkpoint_stale

    def test_records_too_young(self) -> None:
        log = [segment(0, largest_ms=900_000), segment(10, largest_ms=960_000), *LOG[2:]]
        assert plan(log, min_compaction_lag_ms=50_000).first_uncleanable_offset == 10
        assert plan(log, min_compaction_lag_ms=40_000).first_uncleanable_offset == 40  # exactly as old
        assert plan(log, min_compaction_lag_ms=0).first_uncleanable_offset == 40
        # what is clean already may be as young as it likes
        assert plan(log, checkpoint=20, min_compaction_lag_ms=50_000).first_uncleanable_offset == 40

    def test_a_log_of_one_segment(self) -> None:
        assert plan([segment(0)], end_offset=9, last_stable_offset=9) == Cleanable(0, 0, False, 0, 0, False)
        assert plan([segment(0)], end_offset=9).ratio == 0.0


class TestDue:
    def test_by_ratio(self) -> None:
        half = plan(checkpoint=20)
        assert is_due(half, 0.49)
        assert not is_due(half, 0.5)
        assert not is_due(plan([segment(0, 0), segment(40, 0)]), 0.0)

    def test_by_age_of_what_is_dirty(self) -> None:
        log = [segment(0, first_ms=1), segment(10, first_ms=900_000), segment(20, first_ms=950_000), *LOG[3:]]
        old = plan(log, checkpoint=10, max_compaction_lag_ms=99_999)
        assert old.is_overdue
        assert is_due(old, 1.0)
        assert not plan(log, checkpoint=10, max_compaction_lag_ms=100_000).is_overdue
        assert not plan(log, checkpoint=30, max_compaction_lag_ms=1).is_overdue  # no timestamp is no age

    def test_nothing_to_clean_is_never_due(self) -> None:
        log = [segment(0, first_ms=1), *LOG[1:]]
        found = plan(log, last_stable_offset=0, max_compaction_lag_ms=1)
        assert found.is_overdue
        assert not is_due(found, 0.0)

    def test_the_filthiest_first(self) -> None:
        some = [("a", plan(checkpoint=30)), ("b", plan(checkpoint=10)), ("c", plan(checkpoint=10))]
        assert filthiest(some) == "b"
        assert filthiest([]) is None


def groups(segments: list[SegmentFacts], **options: int) -> list[list[int]]:
    settings = {
        "end_offset": 40,
        "first_uncleanable_offset": 40,
        "segment_bytes": 250,
        "index_bytes": 1000,
        **options,
    }
    return group_segments(segments, **settings)


class TestGroups:
    def test_by_size(self) -> None:
        assert groups(LOG[:4]) == [[0, 10], [20, 30]]
        assert groups(LOG[:4], segment_bytes=400) == [[0, 10, 20, 30]]
        assert groups(LOG[:4], segment_bytes=50) == [[0], [10], [20], [30]]

    def test_by_what_the_indexes_hold(self) -> None:
        log = [segment(base, 1, index=6) for base in (0, 10, 20, 30)]
        assert groups(log, index_bytes=12) == [[0, 10], [20, 30]]

    def test_up_to_where_the_map_has_seen(self) -> None:
        assert groups(LOG[:4], end_offset=20) == [[0, 10]]
        assert groups(LOG[:4], end_offset=21) == [[0, 10], [20]]
        assert groups(LOG[:4], end_offset=0) == []

    def test_offsets_that_are_too_far_apart(self) -> None:
        far = MAX_RELATIVE_OFFSET
        log = [segment(0, 1), segment(5, 1), segment(far, 1)]
        bounds = {"end_offset": far + 1, "first_uncleanable_offset": far + 1}
        assert groups(log, **bounds) == [[0, 5, far]]
        assert groups(
            [*log[:2], segment(far + 1, 1)], end_offset=far + 2, first_uncleanable_offset=far + 2
        ) == [
            [0, 5],
            [far + 1],
        ]
        # an empty one has no offsets
        empty = [*log[:2], segment(far + 1, 0)]
        assert groups(empty, end_offset=far + 2, first_uncleanable_offset=far + 2)[0] == [0, 5, far + 1]

    @given(st.lists(st.integers(0, 300), max_size=20), st.integers(1, 600), st.integers(0, 250))
    def test_neighbours_in_order_each_once_and_no_larger_than_a_segment(
        self, sizes: list[int], segment_bytes: int, end_offset: int
    ) -> None:
        log = [segment(10 * number, size) for number, size in enumerate(sizes)]
        found = groups(log, segment_bytes=segment_bytes, end_offset=end_offset)
        assert [base for group in found for base in group] == [
            one.base_offset for one in log if one.base_offset < end_offset
        ]
        totals = [sum(sizes[base // 10] for base in group) for group in found]
        for group, total in zip(found, totals, strict=True):
            assert total <= segment_bytes or len(group) == 1
        for total, following in zip(totals, found[1:], strict=False):
            assert total + sizes[following[0] // 10] > segment_bytes


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2000)), min_size=1, max_size=12),
    st.one_of(st.none(), st.integers(0, 130)),
    st.integers(0, 130),
    st.integers(0, 130),
    st.integers(0, 2000),
)
def test_the_plan_never_takes_in_what_it_may_not(
    log: list[tuple[int, int]], checkpoint: int | None, start: int, stable: int, lag_ms: int
) -> None:
    segments = [segment(10 * number, size, largest_ms=ms) for number, (size, ms) in enumerate(log)]
    end_offset = 10 * len(log)
    found = plan_cleaning(
        segments,
        checkpoint=checkpoint,
        start_offset=min(start, end_offset),
        end_offset=end_offset,
        last_stable_offset=min(stable, end_offset),
        now_ms=2000,
        min_compaction_lag_ms=lag_ms,
        max_compaction_lag_ms=NEVER_MS,
    )
    assert min(start, end_offset) <= found.first_dirty_offset <= end_offset
    assert found.first_uncleanable_offset in [one.base_offset for one in segments]
    assert found.first_uncleanable_offset <= max(segments[-1].base_offset, 0)
    taken = [
        one
        for one in segments
        if found.first_dirty_offset < one.base_offset + 10
        and one.base_offset < found.first_uncleanable_offset
    ]
    assert found.cleanable_bytes == sum(one.size_bytes for one in taken)
    for one in taken:
        assert one.base_offset + 10 <= min(stable, end_offset)
        assert lag_ms == 0 or one.largest_timestamp_ms <= 2000 - lag_ms
    assert 0 <= found.ratio <= 1


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_the_ratio_must_be_exceeded(ratio: float) -> None:
    assert is_due(Cleanable(0, 1, False, 70, 30, False), ratio) == (ratio < 0.3)
