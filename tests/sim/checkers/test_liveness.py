"""What does not go on after the faults is found."""

from __future__ import annotations

from barnabas.sim.checkers.liveness import (
    ACK_S,
    CALM_S,
    FINISH_S,
    SETTLE_S,
    UNDISTURBED_SLACK_S,
    check,
)
from barnabas.sim.history import (
    ClientKilled,
    Crash,
    Fault,
    FaultsEnded,
    Finished,
    SessionEnded,
    Settled,
    Started,
    TopicFacts,
)
from tests.sim.checkers.story import TOPIC, Story, only

ENDED = 100.0
LATER = ENDED + CALM_S + 1
PASS_S = 5 + UNDISTURBED_SLACK_S  # within which a max.compaction.lag.ms of 5,000 is acted upon


def _story(facts: TopicFacts | None = None) -> Story:
    return Story(facts).add(Started(0), Crash(90, "power"), Started(95), FaultsEnded(ENDED))


def _done(story: Story) -> Story:
    """The rest of a good end."""
    return story.add(Settled(ENDED + 5)).final(ENDED + 60, {}).add(Finished(ENDED + 61))


def test_a_good_end() -> None:
    story = _story().written(LATER, "a/0", 0).began(LATER, "s").reads(LATER + 1, "s", {0: "a/0"})
    assert _done(story.ended(LATER + 2, "s", 1)).judged(check) == []


def test_without_an_end_of_faults_nothing_is_said() -> None:
    assert Story().sent(1, "a/0").judged(check) == []


def test_the_broker_stays_down_or_never_stops_crashing() -> None:
    down = Story().add(Started(0), Crash(90, "process"), FaultsEnded(ENDED))
    assert "never started again" in only(_done(down).judged(check)).what
    crashing = _story().add(Crash(LATER, "process"), Started(LATER + 1))
    assert "crashes although the faults ended at 100.000 s" in only(_done(crashing).judged(check)).what
    restarting = _story().add(Started(LATER))
    assert "starts again although the faults ended" in only(_done(restarting).judged(check)).what


def test_each_node_starts_after_its_own_crash() -> None:
    def story(started: int) -> Story:
        both = Story().add(Started(0, 1), Started(0, 2), Crash(80, "power", 2), Crash(90, "process", 1))
        return _done(both.add(Started(95, started), FaultsEnded(ENDED)))

    violation = only(story(1).judged(check))
    assert (violation.at, violation.what) == (80, "node 2 never started again after this crash")
    violation = only(story(2).judged(check))
    assert (violation.at, violation.what) == (90, "node 1 never started again after this crash")
    restarting = _story().add(Started(LATER, 3))
    assert "node 3 starts again although" in only(_done(restarting).judged(check)).what


def test_sends_that_nobody_settles() -> None:
    story = _done(_story().sent(50, "a/0"))
    violation = only(story.judged(check))
    assert violation.at == 50
    assert "'a/0', handed over at 50.000 s for t, was never acknowledged and did not fail" in violation.what
    assert story.add(ClientKilled(51, "a")).judged(check) == []


def test_settled_too_late() -> None:
    story = _story().add(Settled(ENDED + SETTLE_S + 1)).final(ENDED + 91, {}).add(Finished(ENDED + 92))
    assert "were settled only at 191.000 s" in only(story.judged(check)).what


def test_a_send_long_after_the_faults_must_be_acknowledged_soon() -> None:
    failed = _story().sent(LATER, "a/0").failed(LATER + 1, "a/0")
    assert "failed long after the faults: TimedOut" in only(_done(failed).judged(check)).what
    late = _story().sent(LATER, "a/0").acked(LATER + ACK_S + 1, "a/0", 0)
    assert "was acknowledged only now" in only(_done(late).judged(check)).what
    early = _story().sent(ENDED - 1, "a/0").failed(ENDED + 1, "a/0")
    assert _done(early).judged(check) == []


def test_a_reader_does_not_reach_the_end() -> None:
    story = _story().began(LATER, "s").add(SessionEnded(LATER + 9, "s", TOPIC, 0, 4, False))
    assert "and not to the end" in only(_done(story).judged(check)).what


def test_a_partition_that_cannot_be_read_and_work_that_is_never_done() -> None:
    found = [violation.what for violation in _story().add(Settled(ENDED + 1)).judged(check)]
    assert found == ["t-0 could not be read to its end", "the clients' work was done never"]
    story = _story().add(Settled(ENDED + 1)).final(ENDED + 60, {}).add(Finished(ENDED + FINISH_S + 1))
    assert "only at" in only(story.judged(check)).what


def test_a_tombstone_whose_time_is_over_goes_with_the_next_pass() -> None:
    facts = TopicFacts(is_compacted=True, max_compaction_lag_ms=5_000, delete_retention_ms=2_000)

    def left(deleted_at: float, written_at: float) -> list[str]:
        story = Story(facts).add(Started(0), FaultsEnded(ENDED), Settled(ENDED + 5))
        story.written(deleted_at, "a/0", 0, key=b"k", is_tombstone=True)
        story.written(written_at, "a/1", 1, key=b"l")
        story.final(ENDED + 60, {0: "a/0", 1: "a/1"}).add(Finished(ENDED + 61))
        return [violation.what for violation in story.judged(check)]

    (what,) = left(10, 10 + PASS_S + 3)
    assert "still holds the tombstone at offset 0 of key b'k', known since 10.100 s" in what
    assert left(10, 10 + PASS_S + 1) == []  # perhaps cleaned before the tombstone's time was over
    assert left(10, ENDED + 60 - PASS_S + 1) == []  # perhaps not cleaned yet


def test_compaction_that_is_due() -> None:
    facts = TopicFacts(is_compacted=True, max_compaction_lag_ms=5_000)

    def story() -> Story:
        told = _story(facts).written(1, "a/0", 0, key=b"k").written(2, "a/1", 1, key=b"k")
        return told.add(Settled(ENDED + 5))

    done = Finished(ENDED + 61)
    violation = only(story().final(ENDED + 60, {0: "a/0", 1: "a/1"}).add(done).judged(check))
    assert "still holds offset 0 of key b'k', superseded by offset 1 since 2.100 s" in violation.what
    assert story().final(ENDED + 60, {1: "a/1"}).add(done).judged(check) == []
    jumped = story().clock_jumped(50).final(ENDED + 60, {0: "a/0", 1: "a/1"}).add(done)
    assert jumped.judged(check) == []
    failed = story().add(Fault(50, "disk-error", "")).final(ENDED + 60, {0: "a/0", 1: "a/1"}).add(done)
    assert failed.judged(check) == []
    started = story().add(Fault(50, "disk-error", ""), Started(ENDED + 6))
    assert started.final(ENDED + 60, {0: "a/0", 1: "a/1"}).add(done).judged(check) != []
    other = story().add(Fault(50, "disk-error", "", 2), Started(ENDED + 6, 1))
    assert other.final(ENDED + 60, {0: "a/0", 1: "a/1"}).add(done).judged(check) == []


def test_a_reader_at_the_end_is_given_what_comes_at_once() -> None:
    def given(at: float) -> Story:
        story = _story().began(LATER, "s").written(LATER + 1, "a/0", 0).reads(at, "s", {0: "a/0"})
        return _done(story.ended(LATER + 9, "s", 1))

    assert given(LATER + 1.2).judged(check) == []
    violation = only(given(LATER + 3).judged(check))
    assert "s was given 'a/0', acknowledged at 132.100 s, only at 134.000 s" in violation.what
