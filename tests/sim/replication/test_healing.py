"""Partitions that are not led, not whole or still moving long after the faults are found."""

from __future__ import annotations

from barnabas.sim.replication.checkers.healing import Healing
from tests.sim.replication.stories import Story, only


def test_all_is_well_in_time() -> None:
    story = (
        Story()
        .partition(1, -1, (), epoch=2)
        .calm(10)
        .partition(39, 1, (1, 2), epoch=3)
        .partition(54, 1, epoch=3)
    )
    assert story.judged(Healing()) == []


def test_no_leader() -> None:
    story = Story().partition(1, -1, epoch=2).calm(10).partition(41, 1, epoch=3)
    assert "t-0 has no leader since 1.000 s" in only(story.judged(Healing())).what


def test_an_isr_that_is_not_whole_for_ever_or_again() -> None:
    story = Story().partition(1, 1, (1, 2)).calm(10)
    assert "has the ISR (1, 2) since 1.000 s" in only(story.judged(Healing())).what
    story.partition(30, 1).partition(80, 1, (1, 3))
    assert "has the ISR (1, 3) since 80.000 s" in only(story.judged(Healing())).what


def test_a_move_that_does_not_end() -> None:
    story = Story().partition(1, 1, replicas=(1, 2, 3), isr=(1, 2, 3), removing=(3,)).calm(10)
    assert "is moving, adding (), removing (3,)" in only(story.judged(Healing())).what


def test_a_topic_that_was_deleted() -> None:
    assert Story().partition(1, -1, epoch=2).calm(10).gone(20).judged(Healing()) == []


def test_without_an_end_of_the_faults_nothing_is_promised() -> None:
    assert Story().partition(1, -1, (), epoch=2).judged(Healing()) == []
