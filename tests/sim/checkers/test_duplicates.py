"""A second copy of an idempotent producer's record is found."""

from __future__ import annotations

from barnabas.sim.checkers.duplicates import check
from barnabas.sim.history import Started, TopicFacts
from tests.sim.checkers.story import Story, only


def test_each_once() -> None:
    assert (
        Story().written(1, "a/0", 0).written(1, "a/1", 1).final(9, {0: "a/0", 1: "a/1"}).judged(check) == []
    )


def test_twice_in_the_log() -> None:
    story = Story().written(1, "a/0", 0).final(9, {0: "a/0", 1: "a/0"})
    violation = only(story.judged(check))
    assert violation.at == 9
    assert "t-0: 'a/0' of an idempotent producer was read at offset 0 by the last read" in violation.what
    assert "and at offset 1 by the last read" in violation.what


def test_twice_in_the_log_although_power_was_lost() -> None:
    story = Story().sent(1, "a/0").power_lost(2).acked(3, "a/0", 1).final(9, {0: "a/0", 1: "a/0"})
    assert "at offset 1" in only(story.judged(check)).what


def test_a_plain_producer_may_repeat_itself() -> None:
    story = Story().sent(1, "a/0", is_idempotent=False).final(9, {0: "a/0", 1: "a/0"})
    assert story.judged(check) == []


def test_read_at_two_offsets_at_different_times() -> None:
    def story() -> Story:
        return Story().sent(1, "a/0").began(1, "s").reads(2, "s", {0: "a/0"})

    found = only(story().began(3, "u").reads(4, "u", {1: "a/0"}).judged(check))
    assert found.at == 4
    assert "read at offset 0 by reader at 2.000 s and at offset 1" in found.what
    assert story().power_lost(2.5).began(3, "u").reads(4, "u", {1: "a/0"}).judged(check) == []


def test_a_number_that_is_not_remembered() -> None:
    refused = "BrokerError: cannot write to t-0: OUT_OF_ORDER_SEQUENCE_NUMBER"
    story = Story().written(1, "a/0", 0).sent(2, "a/1").failed(3, "a/1", refused)
    violation = only(story.judged(check))
    assert violation.at == 3
    assert "'a/1' for t was refused, and nothing can be lost" in violation.what
    lost = Story().written(1, "a/0", 0).power_lost(1.5).sent(2, "a/1").failed(3, "a/1", refused)
    assert lost.judged(check) == []
    assert Story().sent(2, "a/1").failed(3, "a/1").judged(check) == []


def test_a_start_forgets_what_retention_has_taken() -> None:
    refused = "BrokerError: cannot write to t-0: OUT_OF_ORDER_SEQUENCE_NUMBER"
    shortened = Story(TopicFacts(retention_ms=1)).sent(2, "a/0").add(Started(3))
    assert shortened.failed(4, "a/0", refused).judged(check) == []
    whole = Story().sent(2, "a/0").add(Started(3)).failed(4, "a/0", refused)
    assert "'a/0'" in only(whole.judged(check)).what
    not_started = Story(TopicFacts(retention_ms=1)).add(Started(1)).sent(2, "a/0").failed(4, "a/0", refused)
    assert "'a/0'" in only(not_started.judged(check)).what


def test_a_second_copy_is_excused_only_where_the_first_was_gone_when_it_was_forgotten() -> None:
    refused = "BrokerError: cannot write to t-0: OUT_OF_ORDER_SEQUENCE_NUMBER"

    def story(last_seen_at: float) -> Story:
        told = Story(TopicFacts(retention_ms=1)).sent(1, "a/0").sent(1.5, "a/1").began(1.6, "s")
        told = told.reads(last_seen_at, "s", {1: "a/1"}).add(Started(3)).failed(4, "a/0", refused)
        return told.began(5, "t").reads(6, "t", {7: "a/1"})

    assert story(2).judged(check) == []
    assert "'a/1'" in only(story(5).judged(check)).what
