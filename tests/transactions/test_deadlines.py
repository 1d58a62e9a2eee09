"""Deadlines: in order, taken back, set anew, and cheap in great numbers."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from barnabas.transactions.deadlines import Deadlines

STEPS = st.lists(
    st.tuples(st.sampled_from("sdt"), st.sampled_from("abcdef"), st.integers(0, 20)), max_size=200
)


@given(STEPS)
def test_they_are_those_of_a_plain_dictionary(steps: list[tuple[str, str, int]]) -> None:
    deadlines, plain = Deadlines(), dict[str, float]()
    for what, name, number in steps:
        if what == "s":
            deadlines.set(name, number)
            plain[name] = number
        elif what == "d":
            deadlines.discard(name)
            plain.pop(name, None)
        else:
            due = sorted((at, one) for one, at in plain.items() if at <= number)
            assert deadlines.take_due(number) == [one for _, one in due]
            plain = {one: at for one, at in plain.items() if at > number}
        assert deadlines.next_seconds() == min(plain.values(), default=None)
        assert len(deadlines) == len(plain)


def test_what_was_taken_back_is_not_kept() -> None:
    deadlines = Deadlines()
    for number in range(10_000):
        deadlines.set("a", number + 1000.0)
        deadlines.discard("a")
    assert len(deadlines._heap) <= 100
