"""Readers that are given what was never sent, out of order, or with something left out."""

from __future__ import annotations

from barnabas.sim.checkers.readers import check
from barnabas.sim.history import Kept, Polled, Read, TopicDeleted, TopicDeleting, TopicFacts, TopicMade
from barnabas.sim.replication.events import PartitionSeen
from tests.sim.checkers.story import TOPIC, Story, only


def _written() -> Story:
    return Story().written(1, "a/0", 0).written(2, "a/1", 1).written(3, "a/2", 2)


ALL = {0: "a/0", 1: "a/1", 2: "a/2"}


def test_a_reader_that_sees_everything() -> None:
    assert _written().began(4, "s").reads(5, "s", ALL).final(9, ALL).judged(check) == []


def test_what_nobody_sent() -> None:
    foreign = Read(5, "s", TOPIC, 0, Kept(0, 1, None, b"x", "x", 0))
    violation = only(Story().began(4, "s").add(foreign).judged(check))
    assert violation.at == 5
    assert "t-0 offset 0, read by s: nobody ever sent b'x'" in violation.what


def test_bytes_are_intact() -> None:
    story = _written().began(4, "s")
    record = story.kept(0, "a/0")

    def wrong(**change: object) -> str:
        changed = Read(5, "s", TOPIC, 0, record._replace(**change))  # type: ignore[arg-type]
        return only(_written().began(4, "s").add(changed).judged(check)).what

    assert "and came with None and b'torn'" in wrong(value=b"torn")
    assert "and came with b'k' and b'a/0'" in wrong(key=b"k")
    assert "was sent with time 1000, and came with 7" in wrong(timestamp_ms=7)


def test_the_brokers_time_is_not_the_senders() -> None:
    story = Story(TopicFacts(has_append_time=True)).written(1, "a/0", 0).began(4, "s")
    read = Read(5, "s", TOPIC, 0, story.kept(0, "a/0")._replace(timestamp_ms=7))
    assert story.add(read).judged(check) == []


def test_read_before_it_was_sent() -> None:
    story = Story().sent(7, "a/0").began(4, "s").reads(5, "s", {0: "a/0"})
    assert "was sent only later, at 7.000 s" in only(story.judged(check)).what


def test_offsets_only_go_up() -> None:
    story = _written().began(4, "s").reads(5, "s", {1: "a/1"}).reads(6, "s", {0: "a/0"})
    assert "given offset 0 of t-0, although it had come to 2" in only(story.judged(check)).what
    assert (
        "come to 2 already" in only(_written().began(4, "s", 2).reads(5, "s", {0: "a/0"}).judged(check)).what
    )


def test_something_is_left_out() -> None:
    story = _written().began(4, "s").reads(5, "s", {0: "a/0", 2: "a/2"}).final(9, ALL)
    violation = only(story.judged(check))
    assert "has come to 3 without having been given offset 1" in violation.what
    assert "known to be there since 2.100 s" in violation.what


def test_something_is_left_out_that_came_later() -> None:
    story = Story().began(0.5, "s").written(1, "a/0", 0).written(2, "a/1", 1).reads(5, "s", {1: "a/1"})
    assert "offset 0" in only(story.final(9, {0: "a/0", 1: "a/1"}).judged(check)).what


def test_a_position_is_passed_without_a_record() -> None:
    story = _written().began(4, "s").add(Polled(5, "s", TOPIC, 0, 3)).final(9, ALL)
    assert "offset 0" in only(story.judged(check)).what


def test_what_was_before_the_session_or_is_compacted_away_is_not_missed() -> None:
    story = _written().began(4, "s", 1).reads(5, "s", {2: "a/2"}).final(9, {0: "a/0", 2: "a/2"})
    assert story.judged(check) == []


def test_a_power_loss_may_put_something_else_where_the_reader_has_been() -> None:
    story = Story().sent(1, "b/0").began(0.5, "s").reads(1.5, "s", {0: "b/0"}).power_lost(2)
    story.written(3, "a/0", 0).final(9, {0: "a/0"})
    assert story.judged(check) == []
    known = _written().began(4, "s").reads(5, "s", {0: "a/0", 2: "a/2"}).power_lost(6).final(9, ALL)
    assert "offset 1" in only(known.judged(check)).what


def _compacted(
    *, is_replicated: bool = True, is_tombstone: bool = False, delete_retention_ms: int = 0
) -> Story:
    """Three records, the first and the last of the same key."""
    facts = TopicFacts(is_compacted=True, replicas=3, min_in_sync=2, delete_retention_ms=delete_retention_ms)
    story = Story(facts)
    if is_replicated:
        nodes = (1, 2, 3)
        story.add(PartitionSeen(0.1, 1, 5, TOPIC, "id", 0, 1, 0, 0, nodes, nodes, (), (), (), (), False))
    story.written(1, "a/0", 0, key=b"k").written(2, "a/1", 1, key=b"other")
    return story.written(3, "a/2", 2, key=b"k", is_tombstone=is_tombstone)


def test_what_is_superseded_may_be_compacted_away_by_one_leader_and_not_by_the_next() -> None:
    given = _compacted().began(4, "s").reads(5, "s", {1: "a/1", 2: "a/2"}).final(9, ALL)
    assert given.judged(check) == []
    not_reached = _compacted().began(4, "s").reads(5, "s", {1: "a/1"}).final(9, ALL)
    assert not_reached.judged(check) == []
    in_doubt = _compacted().sent(3.5, "b/0", key=b"k").began(4, "s").reads(5, "s", {1: "a/1"})
    assert in_doubt.add(Polled(6, "s", TOPIC, 0, 2)).final(9, ALL).judged(check) == []


def test_a_tombstone_may_be_gone_from_one_leader_and_not_from_the_next() -> None:
    def story(delete_retention_ms: int) -> Story:
        story = _compacted(is_tombstone=True, delete_retention_ms=delete_retention_ms)
        return story.began(4, "s").reads(5, "s", {1: "a/1"}).add(Polled(6, "s", TOPIC, 0, 3))

    assert story(1000).final(9, ALL).judged(check) == []
    assert story(1000).final(9, {0: "a/0", 1: "a/1"}).judged(check) == []
    assert "offset 0" in only(story(10_000).final(9, ALL).judged(check)).what
    assert "offset 2" in only(story(10_000).final(9, {1: "a/1", 2: "a/2"}).judged(check)).what


def test_what_is_not_superseded_is_not_compacted_away() -> None:
    latest = _compacted().began(4, "s").reads(5, "s", {0: "a/0", 1: "a/1"}).add(Polled(6, "s", TOPIC, 0, 3))
    assert "offset 2" in only(latest.final(9, ALL).judged(check)).what
    other = _compacted().began(4, "s").reads(5, "s", {0: "a/0", 2: "a/2"}).final(9, ALL)
    assert "offset 1" in only(other.judged(check)).what
    both = _compacted().began(4, "s").reads(5, "s", {1: "a/1"}).add(Polled(6, "s", TOPIC, 0, 3))
    assert "offset 0" in only(both.final(9, {0: "a/0", 1: "a/1"}).judged(check)).what
    alone = _compacted(is_replicated=False).began(4, "s").reads(5, "s", {1: "a/1", 2: "a/2"}).final(9, ALL)
    assert "offset 0" in only(alone.judged(check)).what


def test_what_was_deleted_with_its_topic() -> None:
    def story(began_at: float) -> Story:
        story = Story().written(1, "a/0", 0).add(TopicDeleting(2, TOPIC), TopicDeleted(3, TOPIC))
        story.add(TopicMade(4, TOPIC, TopicFacts()))
        return story.began(began_at, "s").reads(6, "s", {0: "a/0"})

    assert story(2.9).judged(check) == []
    what = only(story(5).judged(check)).what
    assert "given 'a/0', acknowledged at 1.100 s, although t was deleted at 3.000 s" in what
