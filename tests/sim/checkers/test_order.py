"""Records that overtook others of the same producer are found."""

from __future__ import annotations

import pytest

from barnabas.sim.checkers.order import check
from barnabas.sim.history import Started, TopicFacts
from tests.sim.checkers.story import Story, only


def test_in_order_with_others_between_and_one_missing() -> None:
    story = Story().sent(1, "a/0").sent(2, "a/1").sent(3, "a/2").sent(1, "b/0")
    assert story.final(9, {0: "a/0", 1: "b/0", 2: "a/2"}).judged(check) == []


def test_overtaken_in_the_log() -> None:
    story = Story().sent(1, "a/0").sent(2, "a/1").final(9, {4: "a/1", 5: "a/0"})
    violation = only(story.judged(check))
    assert violation.at == 9
    assert "'a/0', handed over at 1.000 s, stands at offset 5, behind 'a/1' at 4" in violation.what


def test_overtaken_as_a_reader_saw_it() -> None:
    story = Story().sent(1, "a/0").sent(2, "a/1").began(3, "s").reads(4, "s", {4: "a/1", 5: "a/0"})
    assert "as read by s" in only(story.judged(check)).what


def test_a_plain_producer_promises_no_order() -> None:
    story = Story().sent(1, "a/0", is_idempotent=False).sent(2, "a/1", is_idempotent=False)
    assert story.final(9, {4: "a/1", 5: "a/0"}).judged(check) == []


def test_a_power_loss_while_both_were_open_excuses() -> None:
    def story(power_lost_at: float) -> Story:
        told = (
            Story()
            .sent(1, "a/0")
            .sent(2, "a/1")
            .power_lost(power_lost_at)
            .acked(4, "a/1", 4)
            .acked(5, "a/0", 5)
        )
        return told.final(9, {4: "a/1", 5: "a/0"})

    assert story(3).judged(check) == []
    assert len(story(0.5).judged(check)) == 1
    assert len(story(4.5).judged(check)) == 1


@pytest.mark.parametrize(
    ("retention_ms", "started_at", "error", "is_excused"),
    [
        (1000, 3, "OUT_OF_ORDER_SEQUENCE_NUMBER", True),
        (None, 3, "OUT_OF_ORDER_SEQUENCE_NUMBER", False),  # nothing shortens the log
        (1000, 0.5, "OUT_OF_ORDER_SEQUENCE_NUMBER", False),  # the broker was there all the time
        (1000, 3, "TimedOut", False),  # nor did it say that it had forgotten anything
    ],
)
def test_a_start_on_a_shortened_log_excuses_where_the_broker_refused_the_first(
    retention_ms: int | None, started_at: float, error: str, is_excused: bool
) -> None:
    story = Story(TopicFacts(retention_ms=retention_ms)).sent(1, "a/0").sent(1.1, "a/1").sent(2, "a/2")
    story = story.add(Started(started_at)).failed(4, "a/0", error).acked(5, "a/2", 4).acked(6, "a/1", 5)
    assert (story.final(9, {4: "a/2", 5: "a/1"}).judged(check) == []) is is_excused
