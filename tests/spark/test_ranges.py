"""Ranges are cut without losing or doubling an offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.ranges import OffsetRange, cut

A, B = OffsetRange("a", 0, 100, 200), OffsetRange("b", 1, 0, 50)
RANGES = st.lists(
    st.builds(lambda start, size: (start, start + size), st.integers(0, 99), st.integers(0, 60)), max_size=5
).map(lambda pairs: [OffsetRange("t", number, *pair) for number, pair in enumerate(pairs)])


def test_each_range_is_a_piece_and_empty_ones_are_none() -> None:
    assert cut([A, B._replace(end=0), B]) == [A, B]
    assert cut([]) == []


def test_the_largest_pieces_are_cut_first() -> None:
    assert [(each.partition, each.start, each.end) for each in cut([A, B], min_pieces=3)] == [
        (0, 100, 150),
        (0, 150, 200),
        (1, 0, 50),
    ]
    assert len(cut([A, B], min_pieces=1)) == 2


def test_no_piece_is_larger_than_allowed() -> None:
    assert [each.size for each in cut([A, B], max_size=30)] == [25] * 4 + [25] * 2
    assert [each.size for each in cut([A], max_size=100)] == [100]


@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 40))
def test_the_same_offsets_in_order(ranges: list[OffsetRange], least: int | None, most: int | None) -> None:
    pieces = cut(ranges, least, most)
    assert [(p.partition, offset) for p in pieces for offset in range(p.start, p.end)] == [
        (r.partition, offset) for r in ranges for offset in range(r.start, r.end)
    ]
    assert len(pieces) >= min(least or 0, sum(each.size for each in ranges))
    assert all(0 < each.size <= (most or each.size) for each in pieces)
