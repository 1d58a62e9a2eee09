"""Lost records and topics are found; what was never promised is not missed."""

from __future__ import annotations

import pytest

from barnabas.sim.checkers.lost import FLUSH_SLACK_S, check
from barnabas.sim.history import (
    Crash,
    Fault,
    Started,
    TopicDeleted,
    TopicDeleting,
    TopicFacts,
    TopicMade,
    TopicMaking,
    TopicsListed,
    TopicUnanswered,
)
from barnabas.sim.replication.events import PartitionSeen
from tests.sim.checkers.story import Story, only

COMPACTED = TopicFacts(is_compacted=True, delete_retention_ms=5_000)


def test_all_is_there() -> None:
    story = Story().written(1, "a/0", 0).written(2, "a/1", 1).crashed(3).final(9, {0: "a/0", 1: "a/1"})
    assert story.judged(check) == []


def test_an_acknowledged_record_is_gone_after_a_process_crash() -> None:
    story = Story().written(1, "a/0", 0).written(2, "a/1", 1).crashed(3).final(9, {0: "a/0"})
    violation = only(story.judged(check))
    assert violation.at == 9
    assert "t-0 offset 1, 'a/1', acknowledged at 2.100 s" in violation.what
    assert "nothing can be lost" in violation.what


def test_a_failed_record_may_be_there_or_not() -> None:
    story = Story().sent(1, "a/0").failed(2, "a/0").sent(1, "a/1").failed(2, "a/1").final(9, {0: "a/1"})
    assert story.judged(check) == []


def test_what_was_read_is_as_good_as_acknowledged() -> None:
    story = Story().sent(1, "a/0").failed(2, "a/0").began(1, "s").reads(3, "s", {0: "a/0"}).final(9, {})
    assert "read since 1.000 s" in only(story.judged(check)).what


def test_a_power_loss_may_take_what_was_not_synced() -> None:
    story = Story().written(1, "a/0", 0).written(2, "a/1", 1).power_lost(3).final(9, {0: "a/0"})
    assert story.judged(check) == []


def test_a_power_loss_before_it_was_sent_is_no_excuse() -> None:
    story = Story().power_lost(0.5).written(1, "a/0", 0).final(9, {})
    assert "nothing can be lost since 1.000 s" in only(story.judged(check)).what


def test_a_power_loss_that_a_reader_saw_it_survive_is_no_excuse() -> None:
    story = Story().written(1, "a/0", 0).power_lost(3).began(4, "s").reads(5, "s", {0: "a/0"}).final(9, {})
    assert "nothing can be lost since 4.000 s" in only(story.judged(check)).what


def test_a_power_loss_takes_a_tail_and_no_hole() -> None:
    story = Story().written(1, "a/0", 0).written(2, "a/1", 1).power_lost(3).final(9, {1: "a/1"})
    violation = only(story.judged(check))
    assert "a hole" in violation.what
    assert "'a/1', acknowledged at 2.100 s, survived at the higher offset 1" in violation.what


def test_what_was_written_after_the_loss_makes_no_hole() -> None:
    story = Story().written(1, "a/0", 0).written(2, "a/1", 1).power_lost(3).written(4, "a/2", 1)
    assert story.final(9, {0: "a/0", 1: "a/2"}).judged(check) == []


def test_flush_messages_1_survives_a_power_loss() -> None:
    story = Story(TopicFacts(flush_every_message=True)).written(1, "a/0", 0).power_lost(3).final(9, {})
    assert "flush.messages=1" in only(story.judged(check)).what


def test_flush_messages_1_promises_nothing_before_the_acknowledgement() -> None:
    story = Story(TopicFacts(flush_every_message=True)).sent(1, "a/0").failed(4, "a/0").power_lost(3)
    assert story.began(1, "s").reads(2, "s", {0: "a/0"}).final(9, {}).judged(check) == []


def test_flush_ms_bounds_what_a_power_loss_may_take() -> None:
    facts, soon, late = TopicFacts(flush_ms=1_000), 2.0, 1.1 + 1.0 + FLUSH_SLACK_S + 0.1
    assert Story(facts).written(1, "a/0", 0).power_lost(soon).final(20, {}).judged(check) == []
    violation = only(Story(facts).written(1, "a/0", 0).power_lost(late).final(20, {}).judged(check))
    assert "flush.ms=1000 was over" in violation.what


def test_flush_ms_counts_anew_when_the_broker_starts_and_not_while_the_disk_gives_trouble() -> None:
    facts = TopicFacts(flush_ms=1_000)
    restarted = Story(facts).written(1, "a/0", 0).add(Crash(5, "process"), Started(8)).power_lost(10)
    assert restarted.final(20, {}).judged(check) == []
    dead = Story(facts).written(1, "a/0", 0).add(Crash(2, "process"), Started(3), Crash(4, "process"))
    assert dead.power_lost(10).final(20, {}).judged(check) == []
    flushed = Story(facts).written(1, "a/0", 0).add(Crash(6, "process"), Started(8)).power_lost(10)
    assert "flush.ms=1000 was over" in only(flushed.final(20, {}).judged(check)).what
    troubled = Story(facts).written(1, "a/0", 0).add(Fault(2, "slow-disk", "")).power_lost(10)
    assert troubled.final(20, {}).judged(check) == []


def test_retention_takes_only_from_the_front_and_only_where_there_is_one() -> None:
    def story(facts: TopicFacts) -> Story:
        return Story(facts).written(1, "a/0", 0).written(2, "a/1", 1).final(9, {1: "a/1"}, start=1)

    assert story(TopicFacts(retention_ms=1_000)).judged(check) == []
    found = story(TopicFacts()).judged(check)
    assert "t-0 begins at 1, although nothing may be taken from it" in found[0].what
    assert "offset 0, 'a/0'" in found[1].what
    hole = Story(TopicFacts(retention_ms=1)).written(1, "a/0", 0).written(2, "a/1", 1)
    assert "'a/1'" in only(hole.final(9, {0: "a/0"}, end=2).judged(check)).what


def test_what_is_superseded_may_be_gone() -> None:
    story = Story(COMPACTED).written(1, "a/0", 0, key=b"k").written(2, "a/1", 1, key=b"k")
    assert story.final(9, {1: "a/1"}).judged(check) == []


def test_the_latest_of_a_key_may_not_be_gone() -> None:
    story = Story(COMPACTED).written(1, "a/0", 0, key=b"k").written(2, "a/1", 1, key=b"l")
    assert "'a/0'" in only(story.final(9, {1: "a/1"}).judged(check)).what


def test_what_a_lost_record_superseded_is_missed() -> None:
    """The later one was taken by a power loss after the earlier one had been compacted away."""
    story = Story(COMPACTED._replace(flush_ms=100)).written(1, "a/0", 0, key=b"k")
    story.written(30, "a/1", 1, key=b"k").power_lost(30.2).final(40, {})
    violation = only(story.judged(check))
    assert "'a/0'" in violation.what
    assert "flush.ms" in violation.what


def test_a_tombstone_may_go_with_its_key_when_its_time_is_over() -> None:
    def story() -> Story:
        return (
            Story(COMPACTED).written(1, "a/0", 0, key=b"k").written(2, "a/1", 1, key=b"k", is_tombstone=True)
        )

    assert story().final(9, {}).judged(check) == []
    assert "'a/1'" in story().final(4, {}).judged(check)[1].what
    assert story().clock_jumped(3).final(4, {}).judged(check) == []


def test_a_tombstone_that_failed_may_have_been_written() -> None:
    story = Story(COMPACTED).written(1, "a/0", 0, key=b"k").sent(2, "a/1", key=b"k", is_tombstone=True)
    assert story.failed(3, "a/1").final(9, {}).judged(check) == []


def test_a_tombstone_in_doubt_takes_nothing_that_its_producer_sent_later() -> None:
    story = Story(COMPACTED).sent(1, "a/0", key=b"k", is_tombstone=True).failed(2, "a/0")
    story.written(3, "a/1", 0, key=b"k").final(9, {}, end=1)
    assert "'a/1'" in only(story.judged(check)).what
    of_another = Story(COMPACTED).sent(1, "b/0", key=b"k", is_tombstone=True).failed(2, "b/0")
    assert of_another.written(3, "a/1", 0, key=b"k").final(9, {}, end=1).judged(check) == []


def test_what_was_acknowledged_without_an_offset_is_not_taken_by_a_retention_that_took_nothing() -> None:
    story = Story(TopicFacts(retention_ms=1)).sent(1, "a/0").acked(2, "a/0", -1)
    assert "'a/0'" in only(story.final(9, {}).judged(check)).what


def test_topics_that_were_made_are_there_and_deleted_ones_are_not() -> None:
    story = Story().add(TopicMade(1, "u", TopicFacts()), TopicDeleting(2, "u"), TopicDeleted(3, "u"))
    assert story.add(TopicsListed(9, 8, ("t",))).judged(check) == []
    wrong = story.add(TopicsListed(10, 9, ("u",))).judged(check)
    assert [violation.what for violation in wrong] == [
        "topic 't', made at 0.000 s, is gone",
        "topic 'u', deleted at 3.000 s, is there",
    ]


def test_a_topic_whose_creation_was_asked_for_again_may_be_there() -> None:
    story = Story().add(TopicMade(1, "u", TopicFacts()), TopicDeleting(2, "u"), TopicDeleted(3, "u"))
    assert story.add(TopicMaking(4, "u"), TopicsListed(9, 8, ("t", "u"))).judged(check) == []


@pytest.mark.parametrize(
    ("deleted_at", "ids", "is_excused"),
    [
        (3.0, ("first", "second"), True),
        (3.0, ("first", "first"), False),
        (3.0, (), False),
        (62.5, ("first", "second"), False),
    ],
    ids=["made anew", "came back", "one node", "too late"],
)
def test_topic_may_be_made_anew_that_a_broker_was_asked_for_before_another_one(
    deleted_at: float, ids: tuple[str, ...], is_excused: bool
) -> None:
    story = Story().add(TopicMaking(1, "u"), TopicUnanswered(2, "u"), TopicMade(2.4, "u", TopicFacts()))
    story.add(TopicDeleting(2.6, "u"), TopicDeleted(deleted_at, "u"), TopicsListed(90, 89, ("t", "u")))
    nodes = (1, 2, 3)
    for at, topic_id in zip((2.2, 2.8), ids, strict=False):
        story.add(PartitionSeen(at, 1, 1, "u", topic_id, 0, 1, 0, 0, nodes, nodes, (), (), (), (), False))
    assert [each.what for each in story.judged(check)] == (
        [] if is_excused else [f"topic 'u', deleted at {deleted_at:.3f} s, is there"]
    )
