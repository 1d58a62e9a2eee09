"""An input without an output is found, and so is one with two."""

from __future__ import annotations

from barnabas.sim.checkers.exactly_once import check
from barnabas.sim.history import FinalRead, Kept
from barnabas.sim.transaction_events import Drained
from tests.sim.checkers.story import only
from tests.sim.checkers.transactions import Tale


def tale(*sources: str, end: int = 2) -> Tale:
    """Inputs at 0 and 1, of which `end` are worked off, and outputs made of these."""
    told = Tale().began(1, "x")
    marks = {}
    for offset, source in enumerate(sources):
        told.writes(1, f"x/{offset}", offset, source)
        marks[offset] = f"x/{offset}"
    inputs = tuple(Kept(offset, 0, None, b"", f"p/{offset}") for offset in (0, 1))
    told.ends(3, "x", True).final(9, marks, marks, len(sources) + 1)
    return told.add(Drained(8, "g", "in", 0, end, True), FinalRead(9, 8, "in", 0, 0, 2, inputs))


def test_one_each() -> None:
    assert tale("in-0@0", "in-0@1").judged(check) == []
    assert tale("in-0@0", end=1).judged(check) == []
    assert tale("in-0@0", "in-0@1", "").judged(check) == []


def test_none() -> None:
    assert (
        "input in-0@1 was worked off by g and has no committed output"
        in only(tale("in-0@0").judged(check)).what
    )


def test_two() -> None:
    found = only(tale("in-0@0", "in-0@1", "in-0@0").judged(check))
    assert "input in-0@0 has 2 committed outputs: x/0, x/2" in found.what


def test_the_same_record_twice() -> None:
    told = Tale().began(1, "x").writes(1, "x/0", 0).ends(2, "x", True)
    found = only(told.final(9, {0: "x/0", 1: "x/0"}, {}, 3).judged(check))
    assert "'x/0' is committed at several offsets" in found.what
