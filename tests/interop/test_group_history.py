"""The judge of groups: what is right passes, and each fault is found."""

from __future__ import annotations

import json

from tests.support.group_history import NS, Event, History, Partition

FIRST, SECOND = Partition("t", 0), Partition("t", 1)
PRODUCED = {FIRST: 10, SECOND: 10}


def history(*events: Event) -> History:
    told = History()
    for event in events:
        told.add(event)
    return told


def assigned(at: int, member: str, *partitions: Partition) -> Event:
    return Event(at, member, "assigned", partitions)


def revoked(at: int, member: str, *partitions: Partition) -> Event:
    return Event(at, member, "revoked", partitions)


def read(at: int, member: str, partition: Partition, first: int, last: int) -> Event:
    return Event(at, member, "read", (partition,), (first, last))


def committed(at: int, member: str, partition: Partition, offset: int, since: int | None = None) -> Event:
    return Event(at, member, "committed", (partition,), (offset,), "", at if since is None else since)


GOOD = (
    assigned(1, "a", FIRST, SECOND),
    read(2, "a", FIRST, 0, 4),
    read(3, "a", SECOND, 0, 4),
    committed(4, "a", SECOND, 5),
    revoked(5, "a", SECOND),
    assigned(6, "b", SECOND),
    read(7, "b", SECOND, 5, 9),
    read(8, "a", FIRST, 5, 9),
    committed(9, "b", SECOND, 10),
    Event(10, "a", "left"),
)


def test_what_is_right_passes() -> None:
    told = history(*reversed(GOOD))  # whoever hears it hears it in any order
    assert told.faults(PRODUCED, once=True) == []
    assert told.owned() == {"b": {SECOND}}
    assert told.committed() == {SECOND: 10}


def test_two_owners_at_one_time() -> None:
    told = history(*GOOD, assigned(4, "b", SECOND))
    assert any("owned twice" in fault for fault in told.faults(PRODUCED))


def test_who_is_killed_owns_nothing_any_more() -> None:
    told = history(*GOOD, Event(11, "b", "killed"), assigned(12, "c", SECOND))
    assert told.faults(PRODUCED) == []
    assert told.owned() == {"c": {SECOND}}


def test_one_that_hung_may_still_hold_records_and_one_that_did_not_may_not() -> None:
    late = read(12, "b", SECOND, 9, 9)
    hung = history(*GOOD, Event(11, "b", "frozen"), late)
    assert hung.faults(PRODUCED) == []
    assert "read again" in hung.faults(PRODUCED, once=True)[0]
    (fault,) = history(*GOOD, revoked(11, "b", SECOND), late).faults(PRODUCED)
    assert "does not own it" in fault
    # it came back, and knows by then what it has
    (fault,) = history(
        *GOOD, Event(11, "b", "frozen"), assigned(12, "b"), read(13, "b", SECOND, 9, 9)
    ).faults(PRODUCED)
    assert "does not own it" in fault


def test_a_record_that_nobody_reads() -> None:
    (fault,) = history(*GOOD).faults({**PRODUCED, SECOND: 12})
    assert fault == "never read: t-1 [10, 11] (2 of 12)"


def test_reading_that_skips_or_goes_back() -> None:
    for first in (4, 6):
        events = [event for event in GOOD if event.at_ns != 8]
        faults = history(*events, read(8, "a", FIRST, first, 9)).faults(PRODUCED)
        assert f"a read t-0 (0, 4) and then ({first}, 9)" in faults


def test_commits_that_go_back() -> None:
    (fault,) = history(*GOOD, committed(20, "c", SECOND, 9)).faults(PRODUCED)
    assert fault == "c committed t-1 9 after b committed 10"
    # which of two came first is not known where the one was answered after the other was asked
    assert history(*GOOD, committed(20, "c", SECOND, 9, since=8)).faults(PRODUCED) == []


def test_pauses_of_those_who_keep_and_of_all() -> None:
    told = history(*(event._replace(at_ns=event.at_ns * NS) for event in GOOD))
    kept, unread = told.longest_pauses()
    assert kept is not None
    assert unread is not None
    assert (kept.seconds, kept.partition, kept.member) == (6, FIRST, "a")
    assert (unread.seconds, unread.partition) == (6, FIRST)
    assert str(kept) == "6000 ms (t-0 of a)"


def test_what_a_member_tells() -> None:
    line = '{"at": "17", "member": "a", "did": "read", "partitions": [["t", 1]], "offsets": [3, 5]}'
    assert Event.told(json.loads(line)) == read(17, "a", SECOND, 3, 5)
