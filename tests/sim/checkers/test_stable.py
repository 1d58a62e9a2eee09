"""A stable offset that goes back, or passes what is open, is found."""

from __future__ import annotations

from barnabas.sim.checkers.stable import check
from barnabas.sim.history import Crash, Event
from barnabas.sim.transaction_events import StableSeen
from tests.sim.checkers.story import only
from tests.sim.checkers.transactions import Tale


def seen(at: float, offset: int) -> Event:
    return StableSeen(at, at - 0.1, "watcher", "o", 0, offset)


def open_from_1_to_5(is_commit: bool = True) -> Tale:
    return Tale().began(1, "x").writes(0.9, "x/0", 3).ends(5, "x", is_commit)


def test_it_stays_before_what_is_open() -> None:
    assert open_from_1_to_5().add(seen(3, 3), seen(6, 5)).judged(check) == []
    found = only(open_from_1_to_5().add(seen(3, 4)).judged(check))
    assert "o-0: watcher, who asked at 2.900 s, came to 4, but x is open there at 3" in found.what
    assert only(open_from_1_to_5().reads(3, 0, 4, {}).judged(check)).at == 3
    assert open_from_1_to_5().reads(3, 0, 4, {}, is_committed=False).judged(check) == []


def test_one_that_was_not_committed_may_have_been_aborted_meanwhile() -> None:
    assert open_from_1_to_5(is_commit=False).add(seen(3, 4)).judged(check) == []


def test_it_does_not_go_back() -> None:
    found = only(Tale().add(seen(1, 4), seen(2, 3)).judged(check))
    assert (
        "the stable offset is 3 to watcher, who asked at 1.900 s, but was at least 4 at 1.000 s" in found.what
    )
    assert Tale().add(seen(1, 4), Crash(1.5, "power"), seen(2, 3)).judged(check) == []
    assert Tale().add(seen(1, 4), seen(1.05, 3)).judged(check) == []
    assert "was at least 4" in only(Tale().reads(1, 0, 4, {}).add(seen(2, 3)).judged(check)).what
