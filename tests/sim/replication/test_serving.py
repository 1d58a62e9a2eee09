"""Sends of the drill that take too long are found."""

from __future__ import annotations

from barnabas.sim.history import Acked, Event, Failed, Sent
from barnabas.sim.replication.checkers.serving import check
from barnabas.sim.replication.events import DrillStruck


def _sent(at: float, mark: str) -> Sent:
    return Sent(at, mark, "p", 0, True, "drill", 0, None, b"", 0)


def _story(took_s: float | None, *, is_leader: bool = False, error: str = "") -> list[str]:
    events: list[Event] = [DrillStruck(10, "kill", 2, is_leader), _sent(11, "p/0")]
    if error:
        events.append(Failed(12, "p/0", error))
    elif took_s is not None:
        events.append(Acked(11 + took_s, "p/0", "drill", 0, 0, 0))
    return [violation.what for violation in check(events)]


def test_sends_that_are_acknowledged_soon() -> None:
    assert _story(2.9) == []
    assert _story(5.9, is_leader=True) == []


def test_sends_that_take_too_long() -> None:
    assert "is acknowledged after 3.100 s, node 2 being struck (kill) at 10.000 s" in _story(3.1)[0]
    assert "is acknowledged after 6.100 s" in _story(6.1, is_leader=True)[0]


def test_sends_that_fail_or_are_forgotten() -> None:
    assert "fails: TimedOut" in _story(None, error="TimedOut")[0]
    assert "is never acknowledged" in _story(None)[0]
