"""A compacted topic that does not end with the latest value, or keeps a tombstone from who is owed it."""

from __future__ import annotations

from barnabas.sim.checkers.compacted import check
from barnabas.sim.history import TopicFacts
from tests.sim.checkers.story import Story, only

FACTS = TopicFacts(is_compacted=True, delete_retention_ms=5_000)


def _two_values() -> Story:
    return Story(FACTS).written(1, "a/0", 0, key=b"k").written(2, "a/1", 1, key=b"k")


def _deleted() -> Story:
    return Story(FACTS).written(1, "a/0", 0, key=b"k").written(2, "a/1", 1, key=b"k", is_tombstone=True)


def test_the_latest_value() -> None:
    assert _two_values().final(9, {0: "a/0", 1: "a/1"}).judged(check) == []
    assert _two_values().final(9, {1: "a/1"}).judged(check) == []


def test_an_older_value_at_the_end() -> None:
    violation = only(_two_values().final(9, {0: "a/0"}, end=2).judged(check))
    assert violation.at == 9
    assert "key b'k' ends with 'a/0' at offset 0" in violation.what
    assert "its latest value is 'a/1' at offset 1, acknowledged at 2.100 s" in violation.what


def test_no_value_at_all() -> None:
    assert "key b'k' is missing" in only(_two_values().final(9, {}, end=2).judged(check)).what


def test_a_later_value_is_as_good() -> None:
    story = _two_values().sent(3, "a/2", key=b"k").failed(4, "a/2")
    assert story.final(9, {2: "a/2"}).judged(check) == []


def test_a_session_from_the_start_to_the_end() -> None:
    story = _two_values().began(4, "s").reads(5, "s", {0: "a/0"}).ended(6, "s", 2)
    assert "as read by s from 4.000 s" in only(story.judged(check)).what
    partial = _two_values().began(4, "s", 1).reads(5, "s", {1: "a/1"}).ended(6, "s", 2)
    assert partial.judged(check) == []


def test_what_came_while_it_read_need_not_be_seen() -> None:
    story = Story(FACTS).written(1, "a/0", 0, key=b"k").began(1.5, "s").written(2, "a/1", 1, key=b"k")
    assert story.reads(5, "s", {0: "a/0"}).ended(6, "s", 1).judged(check) == []


def test_a_power_loss_excuses() -> None:
    assert _two_values().power_lost(3).final(9, {0: "a/0"}).judged(check) == []


def test_a_power_loss_does_not_excuse_what_was_on_the_disk() -> None:
    story = Story(FACTS._replace(flush_every_message=True)).written(1, "a/0", 0, key=b"k")
    assert "key b'k' is missing" in only(story.power_lost(3).final(9, {}, end=2).judged(check)).what


def test_tombstone_and_key_may_be_gone() -> None:
    assert _deleted().final(9, {}, end=2).judged(check) == []


def test_a_tombstone_is_owed_to_a_fast_reader() -> None:
    fast = _deleted().began(4, "s").reads(5, "s", {0: "a/0"}).ended(8.9, "s", 2)
    assert "tombstone, which is owed to it, is 'a/1' at offset 1" in only(fast.judged(check)).what


def test_a_tombstone_is_not_owed_to_a_slow_reader_or_when_the_clock_jumps() -> None:
    slow = _deleted().began(4, "s").reads(5, "s", {0: "a/0"}).ended(9.5, "s", 2)
    assert slow.judged(check) == []
    jumped = _deleted().began(4, "s").reads(5, "s", {0: "a/0"}).clock_jumped(6).ended(7, "s", 2)
    assert jumped.judged(check) == []


def test_a_tombstone_in_doubt_may_have_taken_the_key() -> None:
    story = _two_values().sent(3, "a/2", key=b"k", is_tombstone=True).failed(4, "a/2")
    assert story.final(9, {}, end=3).judged(check) == []


def test_what_is_beyond_the_end_of_a_session_may_have_taken_the_latest_before_it() -> None:
    beyond = _two_values().began(4, "s").written(4.5, "a/2", 2, key=b"k").ended(5, "s", 2)
    assert beyond.judged(check) == []
    in_doubt = _two_values().sent(3, "a/2", key=b"k").failed(4, "a/2").began(4, "s").ended(5, "s", 2)
    assert in_doubt.judged(check) == []
    later = _two_values().began(4, "s").ended(5, "s", 2).written(6, "a/2", 2, key=b"k")
    assert "key b'k' is missing" in only(later.judged(check)).what


def test_what_is_in_doubt_excuses_nothing_that_its_producer_sent_later() -> None:
    for is_tombstone in (True, False):
        story = Story(FACTS).sent(1, "a/0", key=b"k", is_tombstone=is_tombstone).failed(2, "a/0")
        story.written(3, "a/1", 0, key=b"k").final(9, {}, end=1)
        assert "key b'k' is missing" in only(story.judged(check)).what


def test_a_session_from_the_middle_is_owed_what_comes_from_there_on() -> None:
    story = _two_values().written(3, "a/2", 2, key=b"l")
    assert story.began(4, "s", 2).reads(5, "s", {2: "a/2"}).ended(6, "s", 3).judged(check) == []
    story = _two_values().written(3, "a/2", 2, key=b"l")
    story.began(4, "s", 1).reads(5, "s", {2: "a/2"}).ended(6, "s", 3)
    assert "key b'k' is missing" in only(story.judged(check)).what


def test_unclean_election_excuses_what_was_on_the_disk() -> None:
    """The replica that has it is not there, and another one leads."""

    def story(*, is_unclean: bool) -> Story:
        facts = FACTS._replace(flush_every_message=True, is_unclean=is_unclean)
        return Story(facts).written(1, "a/0", 0, key=b"k").power_lost(3).final(9, {}, end=2)

    assert story(is_unclean=True).judged(check) == []
    assert story(is_unclean=False).judged(check) != []
