"""Replicas that differ below the high watermark, or in the end, are found."""

from __future__ import annotations

from barnabas.sim.history import TopicFacts
from barnabas.sim.replication.checkers.equal import Equal
from barnabas.sim.replication.events import BatchKept
from tests.sim.replication.stories import Story, batches, only

COMPACTED = TopicFacts(replicas=3, min_in_sync=2, is_compacted=True)


def test_what_is_not_committed_may_differ() -> None:
    story = Story().log(1, 1, batches(0, 1), high_watermark=1).log(2, 2, batches(0) + batches(1, digest=8))
    assert story.log(3, 2, same_until=2, high_watermark=1).judged(Equal()) == []


def test_another_batch_below_the_high_watermark() -> None:
    story = Story().log(1, 1, batches(0, 1), high_watermark=2)
    story.log(2, 2, batches(0) + batches(1, epoch=2), high_watermark=1, epoch=2)
    assert story.judged(Equal()) == []
    violation = only(story.log(3, 2, same_until=2, high_watermark=2, epoch=2).judged(Equal()))
    assert "t-0 on node 2 holds, below its high watermark, at offset 1" in violation.what


def test_a_replica_that_is_behind_or_truncated_and_fetched_again_is_equal() -> None:
    story = Story().log(1, 1, batches(0, 1, 2), high_watermark=3).log(1, 2, batches(0), high_watermark=1)
    story.log(2, 2, batches(1, epoch=9), same_until=1, high_watermark=1)
    assert story.log(3, 2, batches(1, 2), same_until=1, high_watermark=3).judged(Equal()) == []


def test_high_watermark_beyond_the_end() -> None:
    violation = only(Story().log(1, 1, batches(0, 1), high_watermark=3).judged(Equal()))
    assert "t-0 on node 1 ends at 2, with the high watermark 3" in violation.what


def test_what_was_taken_away_below_the_start() -> None:
    story = (
        Story()
        .log(1, 1, batches(0, 1, 2), high_watermark=3)
        .log(1, 2, batches(1, 2), start=1, high_watermark=3)
    )
    story.log(2, 1, start=2, same_until=3, high_watermark=3)
    assert (
        story.partition(2, 1).log(2, 3, batches(2), start=2, high_watermark=3).finished(9).judged(Equal())
        == []
    )


def test_nothing_is_said_of_what_is_in_doubt() -> None:
    story = Story().partition(1, 1).log(1, 1, batches(0, 1), high_watermark=2)
    story.power_lost(2, 1).power_lost(2, 2)
    story.log(3, 3, batches(0) + batches(1, epoch=2), high_watermark=2, epoch=2)
    story.started(4, 1).started(4, 2).partition(5, 3, epoch=2)
    story.log(6, 1, batches(1, epoch=2), same_until=1, high_watermark=2, epoch=2)
    assert story.judged(Equal()) == []
    story.log(7, 2, batches(0, 1), high_watermark=2, epoch=2)
    assert "on node 2 holds" in only(story.judged(Equal())).what


def test_all_have_the_same_in_the_end() -> None:
    story = Story().partition(1, 1)
    for node in (1, 2, 3):
        story.log(2, node, batches(0, 1), high_watermark=2)
    assert story.finished(9).judged(Equal()) == []


def test_another_end_in_the_end() -> None:
    story = Story().partition(1, 1).log(2, 1, batches(0, 1), high_watermark=2)
    story.log(2, 2, batches(0), high_watermark=1).log(2, 3, batches(0, 1), high_watermark=2).finished(9)
    assert "its ends are 2 on node 1, 1 on node 2, 2 on node 3" in only(story.judged(Equal())).what


def test_not_all_committed_in_the_end() -> None:
    story = Story().partition(1, 1)
    for node in (1, 2, 3):
        story.log(2, node, batches(0, 1), high_watermark=node and 1)
    assert "with high watermarks 1 on node 1" in only(story.finished(9).judged(Equal())).what


def test_a_hole_in_the_end() -> None:
    story = Story().partition(1, 1).log(2, 1, batches(0, 1, 2), high_watermark=3)
    story.log(2, 2, batches(0, 2), high_watermark=3).log(2, 3, batches(0, 1, 2), high_watermark=3).finished(9)
    assert "node 2 has a hole up to 2 at offset 1" in only(story.judged(Equal())).what


def test_a_replica_without_a_log_in_the_end() -> None:
    story = (
        Story()
        .partition(1, 1)
        .log(2, 1, batches(0), high_watermark=1)
        .log(2, 2, batches(0), high_watermark=1)
    )
    story.log(2, 3, batches(0), high_watermark=1).no_log(3, 3).finished(9)
    assert "node 3 has no log of it" in only(story.judged(Equal())).what


def test_compacted_replicas_are_compared_by_their_records() -> None:
    whole = BatchKept(0, 3, 1, 7, ((0, 70), (1, 71), (2, 72)))
    cleaned = BatchKept(0, 3, 1, 8, ((0, 70), (2, 72)))
    other = BatchKept(0, 3, 1, 9, ((0, 70), (2, 99)))
    story = Story(COMPACTED).log(1, 1, [whole], high_watermark=3).log(1, 2, [cleaned], high_watermark=3)
    assert story.judged(Equal()) == []
    story.log(2, 3, [other], high_watermark=3)
    assert (
        "node 3 holds, below its high watermark, at offset 2: another record"
        in only(story.judged(Equal())).what
    )
