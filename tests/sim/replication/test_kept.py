"""A leader that lacks what was committed is found, and one who was replaced may lack what came after it."""

from __future__ import annotations

from barnabas.sim.replication.checkers.kept import Kept
from tests.sim.replication.stories import Story, batches, only


def written() -> Story:
    """Node 1 has led in epoch 1, up to offset 3, of which 2 are committed."""
    story = Story().partition(1, 1).log(1, 1, batches(0, 1, 2), high_watermark=2, is_leader=True)
    return story.log(1, 2, batches(0, 1), high_watermark=2).sampled(1)


def test_the_next_leader_has_what_is_committed() -> None:
    story = written().log(2, 2, same_until=2, epoch=2, high_watermark=2, is_leader=True).sampled(2)
    assert story.judged(Kept()) == []


def test_the_next_leader_ends_before() -> None:
    story = written().log(2, 3, batches(0), epoch=2, is_leader=True).sampled(2)
    violation = only(story.judged(Kept()))
    assert violation.what == "t-0 on node 3, its leader in epoch 2, ends at 1, and 2 was committed"


def test_the_next_leader_has_another_batch() -> None:
    story = written().log(2, 3, batches(0) + batches(1, digest=9), epoch=2, is_leader=True).sampled(2)
    assert "has offsets 1 to 2 of epoch 1" in only(story.judged(Kept())).what


def test_a_leader_that_was_replaced_and_does_not_know_it() -> None:
    story = written().log(2, 2, batches(2, epoch=2), same_until=2, epoch=2, high_watermark=3, is_leader=True)
    story.sampled(2).log(3, 1, same_until=3, high_watermark=2, is_leader=True).sampled(3)
    assert story.judged(Kept()) == []


def test_a_replaced_leader_may_lack_earlier_records_that_were_committed_after_it() -> None:
    """What the leader of epoch 1 has beyond its high watermark, that of epoch 2 has not, and that of epoch 3
    commits."""
    story = written().log(2, 3, batches(0, 1), epoch=2, high_watermark=2, is_leader=True).sampled(2)
    story.log(3, 1, same_until=3, epoch=3, high_watermark=3, is_leader=True).sampled(3)
    assert story.judged(Kept()) == []
    story.log(4, 3, same_until=2, epoch=4, high_watermark=2, is_leader=True).sampled(4)
    assert "ends at 2, and 3 was committed" in only(story.judged(Kept())).what


def test_a_leader_that_loses_it_later() -> None:
    story = written().log(2, 1, same_until=1, high_watermark=1, is_leader=True).sampled(2)
    assert "ends at 1, and 2 was committed" in only(story.judged(Kept())).what


def test_beyond_the_budget() -> None:
    story = written().power_lost(2, 1).power_lost(2, 2)
    assert story.log(3, 3, batches(0), epoch=2, is_leader=True).sampled(3).judged(Kept()) == []
