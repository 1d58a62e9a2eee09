"""A read of what was aborted, of what was not committed, and of half a transaction is found."""

from __future__ import annotations

from barnabas.sim.checkers.isolation import check
from tests.sim.checkers.story import only
from tests.sim.checkers.transactions import Tale


def one(is_commit: bool = True) -> Tale:
    return Tale().began(1, "x").writes(1, "x/0", 0).writes(2, "x/1", 1).ends(3, "x", is_commit)


BOTH = {0: "x/0", 1: "x/1"}


def test_a_transaction_is_read_when_it_is_committed() -> None:
    assert one().reads(4, 0, 3, BOTH).final(9, BOTH, BOTH, 3).judged(check) == []
    assert one(is_commit=False).reads(4, 0, 3, {}).final(9, {}, BOTH, 3).judged(check) == []
    early = one().reads(2.5, 0, 2, BOTH, is_committed=False)
    assert early.judged(check) == []


def test_an_aborted_read() -> None:
    found = only(one(is_commit=False).reads(4, 0, 2, {0: "x/0"}).judged(check))
    assert "o-0 offset 0, read by r#1: 'x/0' is committed, but its transaction was aborted" in found.what


def test_a_read_before_the_commit() -> None:
    tale = Tale().began(1, "x").writes(1, "x/0", 0).reads(2, 0, 1, {0: "x/0"})
    assert "asked for never" in only(tale.judged(check)).what
    assert "asked for only at 3.000 s" in only(tale.ends(3, "x", True).judged(check)).what


def test_what_nobody_sent() -> None:
    assert "nobody had sent 'z/0'" in only(Tale().reads(4, 0, 1, {0: "z/0"}).judged(check)).what
    elsewhere = one().sends(3.5, "x/2", partition=1).reads(4, 0, 3, {**BOTH, 2: "x/2"})
    assert "'x/2' was sent to o-1" in only(elsewhere.judged(check)).what


def test_half_a_transaction() -> None:
    found = only(one().reads(4, 0, 3, {0: "x/0"}).final(9, BOTH, BOTH, 3).judged(check))
    assert "came from 0 to 3 without 'x/1', whose transaction committed" in found.what
    assert one().reads(4, 0, 1, {0: "x/0"}).final(9, BOTH, BOTH, 3).judged(check) == []


def test_what_was_committed_is_there_at_last() -> None:
    found = only(one().final(9, {0: "x/0"}, {0: "x/0"}, 3).judged(check))
    assert "x was acknowledged as committed, and 1 of its 2 records are not: ['x/1']" in found.what


def test_one_of_which_nobody_knows_how_it_ended_is_there_or_not() -> None:
    def unknown() -> Tale:
        return Tale().began(1, "x").writes(1, "x/0", 0).writes(2, "x/1", 1).asks(3, "x", True)

    assert unknown().final(9, BOTH, BOTH, 3).judged(check) == []
    assert unknown().final(9, {}, BOTH, 3).judged(check) == []
    found = unknown().final(9, {0: "x/0"}, BOTH, 3).judged(check)
    assert any("x is there in part" in violation.what for violation in found)
