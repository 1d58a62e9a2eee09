"""A group that does not become stable, input that is left, and a transaction that never ends are found."""

from __future__ import annotations

from barnabas.sim.checkers import Violation
from barnabas.sim.checkers.settling import check
from barnabas.sim.group_events import GroupSeen, GroupWanted
from barnabas.sim.history import Event, Finished, History
from barnabas.sim.transaction_events import Drained, StableFinal
from tests.sim.checkers.story import only
from tests.sim.checkers.transactions import Tale

WANTED = GroupWanted(1, "g", 2, (("t", 0), ("t", 1)))


def judged(*events: Event) -> list[Violation]:
    return check(History(events=events))


def member(name: str, generation: int, *partitions: int) -> GroupSeen:
    return GroupSeen(9, "g", name, generation, tuple(("t", each) for each in partitions))


def test_groups() -> None:
    assert judged(WANTED, member("a", 3, 0), member("b", 3, 1)) == []
    assert judged(WANTED, member("a", 3, 0, 1), member("b", 3)) == []
    assert "['b'] outside" in only(judged(WANTED, member("a", 3, 0, 1), member("b", -1))).what
    assert "1 of 2 members" in only(judged(WANTED, member("a", 3, 0, 1))).what
    assert "generations [2, 3]" in only(judged(WANTED, member("a", 2, 0), member("b", 3, 1))).what
    assert "nobody for [('t', 1)]" in only(judged(WANTED, member("a", 3, 0), member("b", 3))).what


def test_input() -> None:
    assert judged(Drained(9, "g", "t", 0, 5, True)) == []
    assert (
        "t-0 was not worked off by g up to its end, 5" in only(judged(Drained(9, "g", "t", 0, 5, False))).what
    )


def test_transactions() -> None:
    assert judged(StableFinal(9, "o", 0, 5, 5)) == []
    assert "stable up to 3, and ends at 5" in only(judged(StableFinal(9, "o", 0, 3, 5))).what


def test_an_output_that_cannot_be_read() -> None:
    assert "o-0 could not be read to its end" in only(Tale().add(Finished(9)).judged(check)).what
    assert Tale().final(8, {}, {}, 0).add(Finished(9)).judged(check) == []
