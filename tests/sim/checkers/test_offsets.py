"""Two contents at one offset are found, whoever saw them."""

from __future__ import annotations

from barnabas.sim.checkers.offsets import check
from barnabas.sim.history import FinalRead, TopicDeleting, TopicFacts
from tests.sim.checkers.story import TOPIC, Story, only


def test_all_agree() -> None:
    story = Story().written(1, "a/0", 0).began(2, "s").reads(3, "s", {0: "a/0"}).final(9, {0: "a/0"})
    assert story.judged(check) == []


def test_two_acknowledgements_for_one_offset() -> None:
    violation = only(Story().written(1, "a/0", 5).written(2, "b/0", 5).judged(check))
    assert violation.at == 2.1
    assert "t-0 offset 5 is 'b/0' to an acknowledgement, but was 'a/0'" in violation.what


def test_an_acknowledgement_and_a_reader_disagree() -> None:
    story = Story().written(1, "a/0", 0).sent(1, "b/0").began(2, "s").reads(3, "s", {0: "b/0"})
    assert "is 'b/0' (key None" in only(story.judged(check)).what


def test_a_power_loss_between_gives_the_offset_away_again() -> None:
    story = Story().written(1, "a/0", 0).power_lost(2).written(3, "b/0", 0).final(9, {0: "b/0"})
    assert story.judged(check) == []


def test_a_power_loss_at_another_time_does_not() -> None:
    story = Story().power_lost(0.5).written(1, "a/0", 0).written(3, "b/0", 0)
    assert len(story.judged(check)) == 1


def test_a_reader_may_have_fetched_before_the_loss() -> None:
    """Its session began before, so what it is given afterwards may be from then."""
    story = Story().written(1, "a/0", 0).began(1.5, "s").power_lost(2).written(3, "b/0", 0)
    assert story.reads(4, "s", {0: "a/0"}).judged(check) == []
    later = Story().written(1, "a/0", 0).power_lost(2).written(3, "b/0", 0)
    assert len(later.began(3.5, "s").reads(4, "s", {0: "a/0"}).judged(check)) == 1


def test_compaction_moves_nothing() -> None:
    facts = TopicFacts(is_compacted=True)
    story = Story(facts).written(1, "a/0", 0, key=b"k").written(2, "a/1", 1, key=b"l")
    assert story.final(9, {1: "a/0"}).judged(check)[0].what.startswith("t-0 offset 1 is 'a/0'")


def test_no_part_of_a_record_changes() -> None:
    story = Story().written(1, "a/0", 0).began(2, "s").reads(3, "s", {0: "a/0"})
    changed = story.kept(0, "a/0")._replace(timestamp_ms=7)
    story.add(FinalRead(9, 8, TOPIC, 0, 0, 1, (changed,)))
    assert "time 7" in only(story.judged(check)).what


def test_a_topic_that_is_deleted_may_begin_anew() -> None:
    story = Story().written(1, "a/0", 0).add(TopicDeleting(2, TOPIC)).written(3, "b/0", 0)
    assert story.judged(check) == []
