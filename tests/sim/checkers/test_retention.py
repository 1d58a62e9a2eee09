"""What retention takes away too early is found."""

from __future__ import annotations

from barnabas.sim.checkers.retention import check
from barnabas.sim.history import OffsetSeen, TopicFacts
from tests.sim.checkers.story import TOPIC, Story, only

FACTS = TopicFacts(retention_ms=10_000)


def _start(at: float, offset: int) -> OffsetSeen:
    return OffsetSeen(at, at - 0.1, "o", TOPIC, 0, "start", offset)


def test_what_is_old_enough_may_go() -> None:
    story = Story(FACTS).written(1, "a/0", 0).written(5, "a/1", 1)
    assert story.add(_start(12, 1)).final(17, {}, start=2, end=2).judged(check) == []


def test_what_is_younger_may_not() -> None:
    story = Story(FACTS).written(1, "a/0", 0).written(5, "a/1", 1).add(_start(12, 2))
    violation = only(story.judged(check))
    assert violation.at == 12
    assert "t-0 begins at 2, but offset 1, 'a/1', was handed over only at 5.000 s" in violation.what
    assert len(Story(FACTS).written(5, "a/1", 1).final(14, {}, start=2, end=2).judged(check)) == 1


def test_a_drift_of_the_clock_a_jump_and_a_power_loss_excuse() -> None:
    story = Story(FACTS).written(90, "a/0", 0)
    assert story.add(_start(99, 1)).judged(check) == []
    young = Story(FACTS).written(2, "a/0", 0)
    assert young.clock_jumped(1).add(_start(8, 1)).judged(check) == []
    lost = Story(FACTS).written(2, "a/0", 0)
    assert lost.power_lost(3).add(_start(8, 1)).judged(check) == []


def test_by_size_anything_may_go() -> None:
    facts = TopicFacts(retention_ms=10_000, retention_bytes=1)
    assert Story(facts).written(1, "a/0", 0).add(_start(2, 1)).judged(check) == []


def test_what_compaction_may_have_taken_makes_a_segment_no_younger() -> None:
    facts = FACTS._replace(is_compacted=True)
    superseded = Story(facts).written(5, "a/0", 0, key=b"k").written(6, "a/1", 1, key=b"k")
    assert superseded.add(_start(12, 1)).judged(check) == []
    tombstone = Story(facts).written(5, "a/0", 0, key=b"k", is_tombstone=True).add(_start(12, 1))
    assert tombstone.judged(check) == []
    latest = Story(facts).written(5, "a/0", 0, key=b"k").written(6, "a/1", 1, key=b"l").add(_start(12, 1))
    assert "'a/0'" in only(latest.judged(check)).what
