"""A move that ends too early is found."""

from __future__ import annotations

from barnabas.sim.replication.checkers.leadership import Leadership
from barnabas.sim.replication.checkers.moves import Moves
from tests.sim.replication.stories import Story, only


def _moving(isr: tuple[int, ...]) -> Story:
    story = Story().partition(1, 1, isr, replicas=(1, 2, 3), partition_epoch=1)
    return story.partition(2, 1, isr, replicas=(1, 4, 2, 3), adding=(4,), removing=(2, 3), partition_epoch=2)


def test_move_ends_when_all_that_stay_are_in_sync() -> None:
    story = _moving((1, 2, 3)).partition(3, 1, (1, 4), replicas=(1, 4), partition_epoch=3)
    assert story.judged(Moves()) == []


def test_move_that_ends_while_one_that_stays_is_out_of_sync() -> None:
    story = _moving((2, 3)).partition(3, 4, (4,), replicas=(1, 4), partition_epoch=3)
    assert "[1] are not in the ISR (4,)" in only(story.judged(Moves())).what


def test_move_that_was_given_up_ends_with_any_isr() -> None:
    story = _moving((2, 3)).partition(3, 2, (2, 3), replicas=(1, 2, 3), partition_epoch=3)
    assert story.judged(Moves()) == []


def test_broker_lost_with_the_end_of_a_move_is_no_violation() -> None:
    story = _moving((1, 2, 3)).partition(3, 1, (1,), replicas=(1, 4), partition_epoch=4)
    assert story.judged(Moves()) == []


def test_leader_that_is_not_active_is_found_when_it_is_elected() -> None:
    story = Story().partition(1, 1).partition(2, 2, epoch=2)
    assert story.judged(Leadership()) == []
    story.events[-1] = story.events[-1]._replace(is_leader_active=False)  # type: ignore[union-attr, call-arg]
    assert "node 2 is elected, and is not active" in only(story.judged(Leadership())).what
