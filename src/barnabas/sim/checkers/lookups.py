"""Look-ups by time and by leader epoch are right, judged by records that were certainly there.

Certain at a moment are records that the last read found and that had been acknowledged or read before:
nothing ever took them away. Others may have come, or gone, while the question was under way.

By time (ListOffsets): the answer is the first record whose timestamp is at least the one asked for. So no
certain record of such a time stands before the answer, or at all where the answer is that there is none; the
record at the answer has the timestamp that was told, and it is not before the one asked for. Where the
largest timestamp was asked for, no certain record has a larger one than was told; that there is none is told,
as by Kafka, where the record that has it is written but not visible yet.

By epoch (OffsetForLeaderEpoch): answered is the largest epoch up to the one asked for, and where it ends,
which is where the next larger one begins. So certain records of epochs up to the asked one stand before that
end and have at most the answered epoch; those of larger epochs stand at or after it. A partition may answer
that it knows nothing only of an epoch larger than all of its own.

A leader that was replaced, and does not know it yet, has all that was committed in its epoch and before. So
of a replicated partition only records up to the epoch of the leader who was asked count.

Each replica compacts by itself: what the last read found on one leader, another may have compacted away. So a
look-up by time may pass a record of a compacted, replicated topic that is superseded, or is a tombstone whose
time is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.sim.checkers.view import Place, View
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import (
    LARGEST_TIME,
    NO_OFFSET,
    NO_PARTITION,
    EpochLookedUp,
    History,
    Kept,
    TimeLookedUp,
)

NAME = "lookups"
UNKNOWN_EPOCH = -1


class _Certain(NamedTuple):
    since: float
    record: Kept


def check(history: History) -> list[Violation]:
    view = View(history)
    by_place: dict[Place, list[_Certain]] = {place: _certain(view, place) for place in view.places()}
    violations = []
    for event in history.events:
        if isinstance(event, (TimeLookedUp, EpochLookedUp)):
            certain = by_place.get((event.topic, event.partition))
            if certain is not None and view.is_replicated:
                certain = [each for each in certain if each.record.leader_epoch <= event.asked_of]
            wrong = None if certain is None else _judge(view, event, certain)
            if wrong is not None:
                asked = (
                    f"{event.topic}-{event.partition}, asked by {event.observer} at {event.asked_at:.3f} s"
                )
                violations.append(Violation(NAME, event.at, f"{asked}, {wrong}"))
    return violations


def _certain(view: View, place: Place) -> list[_Certain]:
    final = view.finals.get(place)
    if final is None:
        return []
    known = view.known_since(place)
    return [_Certain(known[record.offset], record) for record in final.records]


def _judge(view: View, event: TimeLookedUp | EpochLookedUp, certain: list[_Certain]) -> str | None:
    if isinstance(event, TimeLookedUp):
        if event.timestamp_ms != LARGEST_TIME:
            return _by_time(view, event, certain)
        if event.offset == NO_OFFSET:
            return None
        as_asked = event._replace(timestamp_ms=event.found_timestamp_ms)
        return _largest(view, event, certain) or _by_time(view, as_asked, certain)
    return _by_epoch(event, (record for since, record in certain if since <= event.asked_at))


def _may_be_compacted(view: View, event: TimeLookedUp, record: Kept) -> bool:
    """Whether the leader that was asked may have compacted away what the last read found."""
    topic, partition = event.topic, event.partition
    if not (view.is_replicated and view.topics[topic].is_compacted):
        return False
    passed = view.sent[record.mark]
    if passed.value is None and view.may_be_removed(passed, event.at):
        return True
    for sent in view.sent_by_key[topic, record.key]:
        if sent.at > event.at or sent.partition not in (NO_PARTITION, partition):
            continue
        where, stands = view.stands_at.get(sent.mark, (partition, None))
        if stands is None:  # it may have been written
            if sent.mark != record.mark and not view.is_before(sent, passed):
                return True
        elif where == partition and stands > record.offset:
            return True
    return False


def _largest(view: View, event: TimeLookedUp, certain: list[_Certain]) -> str | None:
    for since, record in certain:
        is_larger = since <= event.asked_at and record.timestamp_ms > event.found_timestamp_ms
        if is_larger and not _may_be_compacted(view, event, record):
            return (
                f"the largest time is told to be {event.found_timestamp_ms}, at offset {event.offset}, but "
                f"offset {record.offset} is of time {record.timestamp_ms} and known to be there since "
                f"{since:.3f} s"
            )
    return None


def _by_time(view: View, event: TimeLookedUp, certain: list[_Certain]) -> str | None:
    asked = f"the first record of time {event.timestamp_ms} or later"
    is_found = event.offset != NO_OFFSET
    if is_found and event.found_timestamp_ms < event.timestamp_ms:
        return f"{asked} is told to be at offset {event.offset}, of time {event.found_timestamp_ms}"
    for since, record in certain:
        if since > event.asked_at:
            continue
        is_passed = not is_found or record.offset < event.offset
        if is_passed and record.timestamp_ms >= event.timestamp_ms:
            if _may_be_compacted(view, event, record):
                continue
            told = f"told to be at offset {event.offset}" if is_found else "told not to be there"
            return (
                f"{asked} is {told}, but offset {record.offset} is of time {record.timestamp_ms} and known "
                f"to be there since {since:.3f} s"
            )
        if record.offset == event.offset and record.timestamp_ms != event.found_timestamp_ms:
            return (
                f"{asked} is told to be at offset {event.offset}, of time {event.found_timestamp_ms}, but "
                f"what stands there is of time {record.timestamp_ms}"
            )
    return None


def _by_epoch(event: EpochLookedUp, records: Iterable[Kept]) -> str | None:
    asked, end = event.asked_epoch, event.end_offset
    told = f"epoch {asked} is told to be known as {event.epoch} and to end at {end}"
    if event.epoch == UNKNOWN_EPOCH:
        return _should_be_known(asked, records)
    if event.epoch > asked:
        return f"{told}: a larger one than asked for"
    for record in records:
        if record.leader_epoch <= asked and (record.offset >= end or record.leader_epoch > event.epoch):
            return f"{told}, but offset {record.offset} is of epoch {record.leader_epoch}"
        if record.leader_epoch > asked and record.offset < end:
            return f"{told}, but offset {record.offset} is of epoch {record.leader_epoch} already"
    return None


def _should_be_known(asked: int, records: Iterable[Kept]) -> str | None:
    epochs: Iterator[Kept] = iter(records)
    for record in epochs:
        if record.leader_epoch >= asked:
            return (
                f"epoch {asked} is told not to be known, but offset {record.offset} is of epoch "
                f"{record.leader_epoch}"
            )
    return None
