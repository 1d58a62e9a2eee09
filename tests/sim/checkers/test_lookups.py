"""Wrong answers to look-ups by time and by epoch are found."""

from __future__ import annotations

from barnabas.sim.checkers.lookups import check
from barnabas.sim.history import LARGEST_TIME, EpochLookedUp, TimeLookedUp, TopicFacts
from barnabas.sim.replication.events import PartitionSeen
from tests.sim.checkers.story import TOPIC, Story, only


def _story() -> Story:
    """Records of times 100, 300 and 200 at offsets 0, 2 and 3, known since second 4."""
    story = Story().sent(1, "a/0", time_ms=100).sent(2, "a/1", time_ms=300).sent(3, "a/2", time_ms=200)
    return story.acked(1.5, "a/0", 0).acked(3.5, "a/1", 2).acked(4, "a/2", 3)


def _asked(time_ms: int, offset: int, found_ms: int, asked_at: float = 5) -> list[str]:
    looked_up = TimeLookedUp(6, asked_at, "o", TOPIC, 0, time_ms, offset, found_ms, 0)
    story = _story().add(looked_up).final(9, {0: "a/0", 2: "a/1", 3: "a/2"})
    return [violation.what for violation in story.judged(check)]


def test_right_answers_by_time() -> None:
    assert _asked(0, 0, 100) == []
    assert _asked(100, 0, 100) == []
    assert _asked(101, 2, 300) == []
    assert _asked(301, -1, -1) == []


def test_too_late_an_answer() -> None:
    (what,) = _asked(150, 3, 200)
    assert "told to be at offset 3, but offset 2 is of time 300 and known to be there since 3.500 s" in what


def test_nothing_found_although_there_is() -> None:
    assert "told not to be there, but offset 0" in _asked(50, -1, -1)[0]


def test_an_answer_of_the_wrong_time() -> None:
    assert "at offset 0, of time 100" in _asked(150, 0, 100)[0]
    assert "of time 160, but what stands there is of time 300" in _asked(150, 2, 160)[0]


def test_what_came_while_it_was_asked_may_be_missed() -> None:
    assert _asked(250, -1, -1, asked_at=3) == []
    assert _asked(250, -1, -1, asked_at=3.6) != []


def test_the_largest_time() -> None:
    assert _asked(LARGEST_TIME, 2, 300) == []
    assert _asked(LARGEST_TIME, -1, -1) == []
    assert "told to be 200, at offset 3, but offset 2 is of time 300" in _asked(LARGEST_TIME, 3, 200)[0]
    assert "what stands there is of time 100" in _asked(LARGEST_TIME, 0, 300)[0]
    assert "told to be at offset 7, but offset 2" in _asked(LARGEST_TIME, 7, 300)[0]


def _epochs(asked: int, epoch: int, end_offset: int) -> list[str]:
    """Offsets 0 and 1 are of epoch 2, offset 2 of epoch 5."""
    story = Story().written(1, "a/0", 0).written(1, "a/1", 1).written(2, "a/2", 2)
    story.add(EpochLookedUp(6, 5, "o", TOPIC, 0, asked, epoch, end_offset))
    final = story.final(9, {0: "a/0", 1: "a/1", 2: "a/2"}).events.pop()
    records = tuple(
        record._replace(leader_epoch=5 if record.offset == 2 else 2)
        for record in final.records  # type: ignore[union-attr]
    )
    story.add(final._replace(records=records))  # type: ignore[call-arg]
    return [violation.what for violation in story.judged(check)]


def test_right_answers_by_epoch() -> None:
    assert _epochs(2, 2, 2) == []
    assert _epochs(4, 2, 2) == []
    assert _epochs(5, 5, 3) == []
    assert _epochs(1, 1, 0) == []
    assert _epochs(6, -1, -1) == []


def test_wrong_answers_by_epoch() -> None:
    assert (
        "epoch 2 is told to be known as 2 and to end at 1, but offset 1 is of epoch 2" in _epochs(2, 2, 1)[0]
    )
    assert "offset 2 is of epoch 5 already" in _epochs(2, 2, 3)[0]
    assert "a larger one than asked for" in _epochs(2, 5, 3)[0]
    assert "but offset 2 is of epoch 5" in _epochs(5, 2, 3)[0]
    assert "epoch 3 is told not to be known, but offset 2 is of epoch 5" in _epochs(3, -1, -1)[0]


def test_power_lost_in_between_excuses_only_what_was_not_known() -> None:
    looked_up = TimeLookedUp(6, 5, "o", TOPIC, 0, 50, -1, -1, 0)
    story = _story().power_lost(5.5).add(looked_up).final(9, {0: "a/0"})
    assert "offset 0" in only(story.judged(check)).what


def _compacted(record: str, *, is_replicated: bool = True) -> list[str]:
    """The first record of a time is told to be at offset 2, and `record` was read at offset 0 in the end. One
    of its key was written later, at offset 2."""
    story = Story(TopicFacts(replicas=3, min_in_sync=2, is_compacted=True))
    if is_replicated:
        seen = PartitionSeen(0, 1, 1, TOPIC, "id", 0, 1, 0, 1, (1, 2, 3), (1, 2, 3), (), (), (), (), False)
        story.add(seen)
    story.written(1, "a/0", 0, key=b"k").written(1, "b/0", 0, key=b"other").written(3, "a/1", 2, key=b"k")
    story.add(TimeLookedUp(6, 5, "o", TOPIC, 0, 500, 2, 3000, 0, asked_of=0))
    return [violation.what for violation in story.final(9, {0: record, 2: "a/1"}).judged(check)]


def test_superseded_record_may_be_gone_from_the_leader_that_was_asked() -> None:
    assert _compacted("a/0") == []
    assert "told to be at offset 2, but offset 0" in _compacted("b/0")[0]
    assert "told to be at offset 2, but offset 0" in _compacted("a/0", is_replicated=False)[0]
