"""A replica that is let into the ISR too early is found by its leaving again."""

from __future__ import annotations

from barnabas.sim.replication.checkers.steady import STAYS_S, Steady
from tests.sim.replication.stories import Story, only


def _joined() -> Story:
    return Story().partition(1, 1, (1, 2)).partition(2, 1, (1, 2, 3))


def test_replica_that_stays_in_the_isr() -> None:
    story = _joined().partition(2 + STAYS_S, 1, (1, 2))
    assert story.judged(Steady()) == []


def test_replica_that_leaves_at_once() -> None:
    story = _joined().partition(2.5, 1, (1, 2))
    assert "node 3 joins the ISR, and leaves it after 0.500 s" in only(story.judged(Steady())).what


def test_replica_that_leaves_with_an_election_or_a_move() -> None:
    assert _joined().partition(2.5, 2, (2,), epoch=2).judged(Steady()) == []
    assert _joined().partition(2.5, 1, (1, 2), replicas=(1, 2)).judged(Steady()) == []


def test_member_from_the_beginning_may_leave() -> None:
    assert Story().partition(1, 1).partition(1.5, 1, (1, 2)).judged(Steady()) == []


def test_replica_whose_process_dies_leaves() -> None:
    assert _joined().crashed(2.2, 3).partition(2.5, 1, (1, 2)).judged(Steady()) == []
