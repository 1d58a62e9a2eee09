"""Two owners of a partition are found, and so is a generation that outlives its successor."""

from __future__ import annotations

from barnabas.sim.checkers import Violation
from barnabas.sim.checkers.ownership import check
from barnabas.sim.group_events import (
    Affirmed,
    Assigned,
    CommitDone,
    CommitSent,
    GivenUp,
    Joined,
    Joining,
)
from barnabas.sim.history import ClientKilled, Crash, Event, Fault, History, Started
from tests.sim.checkers.story import only

P0, P1 = ("t", 0), ("t", 1)


def judged(*events: Event) -> list[Violation]:
    return check(History(events=events))


def assigned(at: float, who: str, generation: int, *partitions: int, instance: str = "") -> Assigned:
    places = tuple(("t", each) for each in partitions)
    return Assigned(at, at - 0.1, "g", who, f"{who}-id", instance, generation, places, 5.0)


def affirmed(at: float, who: str, generation: int) -> Affirmed:
    return Affirmed(at, at - 0.1, "g", who, f"{who}-id", generation)


def commit(at: float, generation: int, *, sent_at: float) -> tuple[Event, Event]:
    mark = f"m/{at}"
    return CommitSent(sent_at, mark, "g", "t", 0, 1, generation), CommitDone(at, mark)


def test_each_has_its_own() -> None:
    assert judged(assigned(1, "a", 1, 0), assigned(1, "b", 1, 1), affirmed(2, "a", 1)) == []


def test_two_of_one_generation() -> None:
    found = judged(assigned(1, "a", 1, 0), assigned(2, "b", 1, 0))
    assert any("a-id" in violation.what and "b-id" in violation.what for violation in found)
    assert len(found) == 2


def test_another_part_in_the_same_generation() -> None:
    found = judged(assigned(1, "a", 1, 0), GivenUp(1.5, "g", "a", "x"), assigned(2, "a", 1, 1))
    assert "is given (('t', 1),), and was given (('t', 0),)" in only(found).what


def test_the_next_generation_before_the_owner_was_told() -> None:
    found = only(judged(assigned(1, "a", 1, 0), assigned(3, "b", 2, 0)))
    assert found.at == 3
    assert "belongs to b-id (b) by generation 2 and still to a-id (a), until 5.900 s" in found.what


def test_what_ends_an_ownership() -> None:
    first, then = assigned(1, "a", 1, 0), assigned(3, "b", 2, 0)
    assert judged(first, Joining(2, "g", "a", ""), then) == []
    assert judged(first, GivenUp(2, "g", "a", "UNKNOWN_MEMBER_ID"), then) == []
    assert judged(first, ClientKilled(2, "a"), then) == []
    assert judged(first, assigned(6, "b", 2, 0)) == []  # nothing was heard for too long
    assert judged(first, affirmed(4, "a", 1), assigned(6, "b", 2, 0)) != []
    assert judged(first, Joining(2, "g", "c", ""), GivenUp(2, "other", "a", "x"), then) != []


def test_another_process_takes_the_place_of_an_instance() -> None:
    first, second = assigned(1, "a", 1, 0, instance="i"), assigned(3, "b", 1, 0, instance="i")
    assert judged(first, Joining(2, "g", "b", "i"), second) == []
    later = assigned(4, "c", 2, 0)
    taken = (first, Joining(2, "g", "b", "i"), GivenUp(3, "g", "b", "leaves"), later)
    assert judged(*taken) == []
    # one that was not answered may still come
    lost = Joining(0.5, "g", "z", "i")
    assert judged(lost, first, later) == []
    answered = Joined(0.6, 0.5, "g", "z", "z-id", 1, "z-id")
    assert judged(lost, answered, first, later) != []


def test_an_old_generation_is_refused_once_a_later_one_is_there() -> None:
    late = judged(
        assigned(1, "a", 1, 0), Joining(1.5, "g", "a", ""), assigned(2, "b", 2, 1), affirmed(3, "a", 1)
    )
    assert "a heartbeat of a-id in generation 1 of g, sent at 2.900 s, was accepted" in only(late).what
    found = only(judged(assigned(2, "b", 2, 1), *commit(4, 1, sent_at=3)))
    assert (
        "in generation 1 of g, sent at 3.000 s, was accepted, although 2 was there since 2.000 s"
        in found.what
    )
    assert judged(assigned(2, "b", 2, 1), *commit(4, 1, sent_at=1.9)) == []
    assert judged(assigned(2, "b", 2, 1), *commit(4, -1, sent_at=3)) == []


def test_a_generation_that_was_only_joined_may_be_undone() -> None:
    joined = Joined(2, 1.9, "g", "b", "b-id", 2, "b-id")
    assert "accepted" in only(judged(joined, *commit(4, 1, sent_at=3))).what
    assert judged(joined, Started(2.5), *commit(4, 1, sent_at=3)) == []
    full = Fault(2.5, "disk-full", "for 3 s")
    assert (
        judged(joined, full, *commit(4, 1, sent_at=3)) == judged(full, joined, *commit(4, 1, sent_at=3)) == []
    )
    assert judged(joined, Fault(2.5, "clock-jump", ""), *commit(4, 1, sent_at=3)) != []
    assert judged(assigned(2, "b", 2, 1), Started(2.5), *commit(4, 1, sent_at=3)) != []


def test_late_answer_of_a_dead_process_does_not_count_as_a_generation() -> None:
    def judged_with(*before: Event, asked_at: float) -> list[Violation]:
        joined = Joined(2, asked_at, "g", "b", "b-id", 2, "b-id")
        return judged(*before, joined, *commit(4, 1, sent_at=3))

    crashed = (Crash(1.5, "process"), Started(1.7))
    assert judged_with(*crashed, asked_at=1.4) == []
    assert judged_with(*crashed, asked_at=1.6) != []  # sent after the crash: only the new process can answer
    assert judged_with(*crashed, asked_at=1.8) != []
    restarted = (Crash(0.5, "power"), Started(0.7), Started(1.7))  # the second time after a clean stop
    assert judged_with(*restarted, asked_at=1.6) == []
    assert judged_with(*restarted, asked_at=1.8) != []


def test_late_assignment_of_a_dead_process_counts() -> None:
    synced = Assigned(2, 1.4, "g", "b", "b-id", "", 2, (P1,), 5.0)
    late = judged(Crash(1.5, "process"), Started(1.7), synced, *commit(4, 1, sent_at=3))
    assert "accepted" in only(late).what  # it was written down before it was answered
