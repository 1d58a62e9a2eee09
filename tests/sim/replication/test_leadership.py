"""Two leaders in one epoch, and epochs that go back, are found."""

from __future__ import annotations

from barnabas.sim.replication.checkers.leadership import Leadership
from barnabas.sim.replication.events import BatchKept
from tests.sim.replication.stories import Story, batches, only


def test_one_leader_an_epoch() -> None:
    story = Story().partition(1, 1).log(1, 1, is_leader=True).partition(2, 2, (2, 3), epoch=2)
    assert story.log(3, 2, is_leader=True, epoch=2).log(3, 1, is_leader=True).judged(Leadership()) == []


def test_two_in_the_metadata() -> None:
    story = Story().partition(1, 1).partition(2, 2)
    assert only(story.judged(Leadership())).what == "t-0 is led by 1 and by 2 in epoch 1"


def test_a_node_leads_in_the_epoch_of_another() -> None:
    story = Story().partition(1, 1).log(2, 3, is_leader=True)
    assert only(story.judged(Leadership())).what == "t-0 is led by 1 and by 3 in epoch 1"


def test_epochs_that_go_back() -> None:
    story = Story().partition(1, 1, epoch=2).partition(2, 2, epoch=1)
    assert "goes back from leader epoch 2 to 1" in only(story.judged(Leadership())).what
    story = Story().partition(1, 1, partition_epoch=5).partition(2, 1, (1, 2), partition_epoch=4)
    assert "goes back from partition epoch 5 to 4" in only(story.judged(Leadership())).what


def test_a_topic_created_anew_begins_with_the_first_epoch() -> None:
    assert (
        Story().partition(1, 1, epoch=4).partition(2, 2, epoch=0, topic_id="another").judged(Leadership())
        == []
    )


def test_two_batches_at_one_offset_of_one_epoch() -> None:
    story = Story().log(1, 1, batches(0, 1)).log(1, 2, batches(0) + batches(1, epoch=2))
    assert story.judged(Leadership()) == []
    story.log(2, 3, batches(0, digest=99))
    assert "t-0 on node 3 at offset 0: a batch up to 1" in only(story.judged(Leadership())).what


def test_epochs_that_go_back_in_a_log() -> None:
    story = Story().log(1, 1, batches(0, epoch=2) + batches(1, epoch=1))
    assert "epoch 1 comes after epoch 2" in only(story.judged(Leadership())).what


def test_what_compaction_leaves_of_a_batch_is_another_one() -> None:
    whole, cleaned = (BatchKept(0, 2, 1, digest, ((1, 5),)) for digest in (7, 8))
    assert Story().log(1, 1, [whole]).log(1, 2, [cleaned]).judged(Leadership()) == []
