"""How much goes into a micro-batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.metadata import TopicPartition
from barnabas.spark.admission import Pacing, admit

A, B, C = (TopicPartition("t", n) for n in range(3))


def test_a_limit_is_shared_in_proportion() -> None:
    begin = {A: 100, B: 0, C: 7}
    latest = {A: 190, B: 10, C: 7}
    assert admit(begin, latest, 40) == {A: 136, B: 4, C: 7}
    assert admit(begin, latest, None) == admit(begin, latest, 100) == latest
    assert admit(begin, latest, 1) == {A: 101, B: 1, C: 7}  # nobody starves
    assert admit({}, {}, 5) == {}


def test_what_has_gone_back_takes_no_share() -> None:
    assert admit({A: 100, B: 0}, {A: 50, B: 10}, 5) == {A: 50, B: 5}


SIZES = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=8)


@given(SIZES, st.integers(1, 1 << 41))
def test_a_batch_is_within_the_limit_and_makes_progress(sizes: list[int], limit: int) -> None:
    latest = {TopicPartition("t", n): size for n, size in enumerate(sizes)}
    taken = admit(dict.fromkeys(latest, 0), latest, limit)
    waiting = [size for size in sizes if size]
    assert all(taken[each] <= latest[each] for each in latest)
    assert all(taken[each] > 0 for each in latest if latest[each])
    assert sum(taken.values()) <= max(limit, 0) + len(waiting)


def test_a_batch_that_is_too_small_waits_but_not_for_ever() -> None:
    pacing = Pacing(min_offsets=10, max_delay_s=60)
    begin = {A: 0, B: 0}
    assert not pacing.is_too_early(begin, {A: 1, B: 0}, 0.0)  # the first one goes
    assert pacing.is_too_early(begin, {A: 5, B: 4}, 1.0)
    assert not pacing.is_too_early(begin, {A: 5, B: 5}, 2.0)
    assert pacing.is_too_early(begin, {A: 1, B: 0}, 61.0)
    assert not pacing.is_too_early(begin, {A: 1, B: 0}, 62.0)
