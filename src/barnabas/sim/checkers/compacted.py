"""Whoever reads a compacted partition from its start to its end knows the latest value of every key.

Judged is every session that reached an end, and the last read of all. For each key, take the latest record
that was acknowledged before the session began. Unless that stands before where the session began (retention
may have taken it), what the session saw last of that key is that record or a later one.

Where it is a tombstone it may have been removed, and with it everything before; then the session sees nothing
of the key. But a session that saw an older value is owed the tombstone (or something later) if it got from
the start to the end within delete.retention.ms: what it saw was still there when it began, so the tombstone's
time began to run only afterwards. The time is the broker's wall clock: a jump during the session excuses it.
A tombstone that was sent but not acknowledged may have been written, so it may excuse that a key is missing;
not so one that an idempotent producer was given before that latest record.

A replaced leader may not know yet of what came after it: of a replicated partition the latest record is that
before where the session came to.

A session stops where the end was when it began. A compaction in its middle may have taken the record for the
sake of one beyond that: where there may be such a one, a session is owed nothing of the key.

What is superseded need not be gone. A power loss from the sending of the record to the session's end excuses,
unless flush.messages=1 had it on the disk when it was acknowledged, and unclean elections are not allowed.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.sim.checkers.view import Place, View
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Acked, History, Kept, Sent

NAME = "compacted"
NO_END = 1 << 63


class _Walk(NamedTuple):
    """A way to the end."""

    who: str
    place: Place
    began_at: float
    ended_at: float
    start_offset: int
    end_offset: int
    records: list[Kept]


def check(history: History) -> list[Violation]:
    view = View(history)
    acks = {place: _acks_by_key(view, place) for place in view.places() if view.topics[place[0]].is_compacted}
    violations = []
    for walk in _walks(view):
        last: dict[bytes | None, Kept] = {record.key: record for record in walk.records}
        for key, acked in acks[walk.place].items():
            latest = _latest(view, acked, walk)
            if latest is None or _may_be_lost(view, latest, walk):
                continue
            later = [
                each
                for each in view.sent_by_key[walk.place[0], key]
                if each.at <= walk.ended_at and not view.is_before(each, view.sent[latest.mark])
            ]
            if any(_is_beyond(view, each, walk) for each in later):
                continue
            tombstones = [each for each in later if each.value is None]
            wrong = _judge(view, walk, latest, last.get(key), tombstones)
            if wrong is not None:
                where = f"{walk.place[0]}-{walk.place[1]} as read by {walk.who} from {walk.began_at:.3f} s"
                violations.append(Violation(NAME, walk.ended_at, f"{where}: key {key!r} {wrong}"))
    return violations


def _walks(view: View) -> list[_Walk]:
    found = []
    for session in view.sessions.values():
        began, ended = session.began, session.ended
        facts = view.topics.get(began.topic)
        if facts is None or not facts.is_compacted or ended is None:
            continue
        if ended.is_at_end:
            place, records = (began.topic, began.partition), [read.record for read in session.reads]
            offsets = began.start_offset, ended.position
            found.append(_Walk(began.session, place, began.at, ended.at, *offsets, records))
    for place, final in view.finals.items():
        if place[0] in view.topics and view.topics[place[0]].is_compacted:
            records, offsets = list(final.records), (final.start_offset, final.end_offset)
            found.append(_Walk("the last read", place, final.asked_at, final.at, *offsets, records))
    return found


def _acks_by_key(view: View, place: Place) -> dict[bytes | None, list[Acked]]:
    found: dict[bytes | None, list[Acked]] = {}
    for acked in sorted(view.acks[place], key=lambda each: each.offset):
        found.setdefault(view.sent[acked.mark].key, []).append(acked)
    return found


def _is_beyond(view: View, sent: Sent, walk: _Walk) -> bool:
    """Whether it may stand where the walk did not come to."""
    partition, offset = view.stands_at.get(sent.mark, (walk.place[1], walk.end_offset))
    return partition == walk.place[1] and offset >= walk.end_offset


def _may_be_lost(view: View, latest: Acked, walk: _Walk) -> bool:
    facts = view.topics[walk.place[0]]
    is_synced = facts.flush_every_message and not facts.is_unclean
    return not is_synced and view.may_lose(walk.place, view.sent[latest.mark].at, walk.ended_at)


def _latest(view: View, acked: list[Acked], walk: _Walk) -> Acked | None:
    """The last one that was certainly there when the walk began, if that is where it came by."""
    before = walk.end_offset if view.is_replicated else NO_END
    there = (each for each in reversed(acked) if each.at <= walk.began_at and each.offset < before)
    latest = next(there, None)
    return None if latest is None or latest.offset < walk.start_offset else latest


def _judge(view: View, walk: _Walk, latest: Acked, seen: Kept | None, tombstones: list[Sent]) -> str | None:
    if seen is not None and seen.offset >= latest.offset:
        return None
    is_deleted = view.sent[latest.mark].value is None
    promised = f"{latest.mark!r} at offset {latest.offset}, acknowledged at {latest.at:.3f} s"
    may_be_gone = is_deleted or any(_may_follow(view, each, latest) for each in tombstones)
    if seen is None:
        return None if may_be_gone else f"is missing; its latest value is {promised}"
    took_ms = (walk.ended_at - walk.began_at) * 1000
    is_owed = took_ms < view.topics[walk.place[0]].delete_retention_ms
    if may_be_gone and (not is_owed or view.has_clock_jump(walk.began_at, walk.ended_at)):
        return None
    what = "tombstone, which is owed to it," if is_deleted else "value"
    return f"ends with {seen.mark!r} at offset {seen.offset}; its latest {what} is {promised}"


def _may_follow(view: View, tombstone: Sent, latest: Acked) -> bool:
    acked = view.acked.get(tombstone.mark)
    return acked is None or acked.offset < 0 or acked.offset > latest.offset
