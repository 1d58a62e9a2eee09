"""Nothing promised is lost.

Known to be written is a record that was acknowledged, or that anybody read. What an acknowledgement promises
on one broker is that the record is in the page cache: it survives every crash of the process. With acks=all
of a replicated partition it is in the page cache of all in-sync replicas, and survives the power losses of
the budget (budget.py), too. Reading one proves as much. Only a power loss beyond that may take it, and only
one that came after its last certain sign of life (it was handed over, or a session that read it began); but
not

- what was acknowledged on a topic with flush.messages=1, unless unclean elections are allowed: it is on the
  disks before the acknowledgement;
- what was acknowledged longer than flush.ms ago, plus FLUSH_SLACK_S for the task that sees to it. The broker
  counts anew when it starts, so one process must have run for so long; and while the disk gives trouble, no
  time is promised. Nor is it of several replicas, whichever is elected when all of them may lack something;
- a record in the middle: a power loss takes a tail. If something acknowledged before the loss, at a higher
  offset, survives, so must the record.

Not lost is what retention took (the topic has one, and the offset is below the log's start), and on a
compacted topic what is superseded: a later record of the same key survives, or has itself been superseded, or
was a tombstone whose time is over; so, too, where a tombstone that was sent later may have been written and
be gone again, seen by nobody. A later record that a power loss took supersedes nothing: what it replaced was
to be kept until it was itself safe.

A topic whose creation was confirmed is there; one whose deletion was confirmed is not. But where there are
several nodes a broker goes on asking the controller for FORWARDED_S, as in Kafka, though its client has long
asked another one: a creation that was asked for twice may be carried out once more after the deletion, and
makes a topic with another id. Where nothing may be taken away, the log begins at 0.
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from typing import NamedTuple

from barnabas.sim.checkers.view import Place, View
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import (
    Acked,
    Crash,
    Fault,
    FinalRead,
    History,
    Sent,
    Started,
    TopicDeleted,
    TopicDeleting,
    TopicFacts,
    TopicMade,
    TopicMaking,
    TopicsListed,
    TopicUnanswered,
)
from barnabas.sim.replication.events import PartitionSeen

NAME = "lost"
FLUSH_SLACK_S = 3.0
FORWARDED_S = 60.0
DISK_TROUBLE_S = 30.0  # how long a disk fault may be felt
DISK_FAULTS = ("slow-disk", "disk-full", "disk-error")


class _Known(NamedTuple):
    """A record that was written."""

    mark: str
    offset: int  # -1: acknowledged without one
    alive_at: float  # the last moment at which it was certainly there, or not yet written
    acked: Acked | None
    key: bytes | None
    is_tombstone: bool


def check(history: History) -> list[Violation]:
    view = View(history)
    violations = _topics(history, view)
    for place in view.places():
        final = view.finals.get(place)
        if final is not None:
            violations += _Partition(view, place, final).check()
    return violations


# ---- topics ----------------------------------------------------------------------------------------------


def _topics(history: History, view: View) -> list[Violation]:
    listed = list(history.of(TopicsListed))
    if not listed:
        return []
    last, there = listed[-1], set(listed[-1].topics)
    made: dict[str, float] = {}
    deleted: dict[str, float] = {}
    unanswered: dict[str, float] = {}
    deleting: dict[str, float] = {}
    for event in history.events:
        if isinstance(event, TopicMade):
            made[event.topic] = event.at
        elif isinstance(event, TopicUnanswered):
            unanswered[event.topic] = event.at
        elif isinstance(event, TopicMaking):
            deleted.pop(event.topic, None)
        elif isinstance(event, TopicDeleting):
            deleting[event.topic] = event.at
        elif isinstance(event, TopicDeleted):
            deleted[event.topic] = event.at

    def is_made_anew(topic: str, deleted_at: float) -> bool:
        is_due = deleted_at < unanswered.get(topic, -inf) + FORWARDED_S
        return is_due and _has_another_id(history, topic, deleting.get(topic, deleted_at))

    gone = [
        Violation(NAME, last.at, f"topic {topic!r}, made at {made[topic]:.3f} s, is gone")
        for topic in view.topics
        if topic not in there
    ]
    back = [
        Violation(NAME, last.at, f"topic {topic!r}, deleted at {at:.3f} s, is there")
        for topic, at in deleted.items()
        if topic in there and not is_made_anew(topic, at)
    ]
    return gone + back


def _has_another_id(history: History, topic: str, deleting_at: float) -> bool:
    """Whether a topic has an id in the end that it did not have before its deletion was asked for."""
    seen = [(each.at, each.topic_id) for each in history.of(PartitionSeen) if each.topic == topic]
    return bool(seen) and seen[-1][1] not in {topic_id for at, topic_id in seen if at < deleting_at}


# ---- records ---------------------------------------------------------------------------------------------


class _Partition:
    def __init__(self, view: View, place: Place, final: FinalRead) -> None:
        self._view, self._place, self._final = view, place, final
        self._facts: TopicFacts = view.topics[place[0]]
        self._surviving = {record.mark: record.offset for record in final.records}
        self._known = _known(view, place)
        self._earliest_above = self._acked_before_by_offset()
        self._crashes = [event.at for event in view.history.of(Crash)]
        self._starts = [event.at for event in view.history.of(Started)]
        self._disk_faults = [event.at for event in view.history.of(Fault) if event.kind in DISK_FAULTS]

    def check(self) -> list[Violation]:
        violations = []
        if self._final.start_offset > 0 and not self._facts.is_trimmed:
            what = f"{self._name} begins at {self._final.start_offset}, although nothing may be taken from it"
            violations.append(Violation(NAME, self._final.at, what))
        superseded = self._superseded() if self._facts.is_compacted else set()
        for known in self._known.values():
            if known.mark in self._surviving or known.mark in superseded or self._is_trimmed(known):
                continue
            why = self._why_lost(known)
            if why is not None:
                violations.append(Violation(NAME, self._final.at, f"{self._told(known)} is not there: {why}"))
        return violations

    @property
    def _name(self) -> str:
        return f"{self._place[0]}-{self._place[1]}"

    def _told(self, known: _Known) -> str:
        how = (
            f"acknowledged at {known.acked.at:.3f} s" if known.acked else f"read since {known.alive_at:.3f} s"
        )
        return f"{self._name} offset {known.offset}, {known.mark!r}, {how},"

    def _is_trimmed(self, known: _Known) -> bool:
        return self._facts.is_trimmed and self._final.start_offset > max(known.offset, 0)

    # What a power loss may have taken

    def _why_lost(self, known: _Known) -> str | None:
        """None where a power loss explains it."""
        losses = [each.since for each in self._view.doubts(self._place).all if each.until >= known.alive_at]
        if not losses:
            return f"nothing can be lost since {known.alive_at:.3f} s"
        if self._facts.flush_every_message and known.acked is not None and not self._facts.is_unclean:
            return "it was acknowledged with flush.messages=1"
        losses = [at for at in losses if not self._is_flushed(known, at)]
        if not losses:
            return f"flush.ms={self._facts.flush_ms} was over before power was lost"
        above = self._survivor_above(known)
        if above is not None and above.at < losses[0]:
            return (
                f"{above.mark!r}, acknowledged at {above.at:.3f} s, survived at the higher offset "
                f"{above.offset} the power loss of {losses[0]:.3f} s: a hole"
            )
        return None

    def _is_flushed(self, known: _Known, lost_at: float) -> bool:
        """Whether the record was to be on the disk by then: one process ran long enough behind it."""
        if known.acked is None or self._facts.flush_ms is None or self._view.is_replicated:
            return False
        since = known.acked.at
        if _has_between(self._disk_faults, since - DISK_TROUBLE_S, lost_at):
            return False
        needed = self._facts.flush_ms / 1000 + FLUSH_SLACK_S
        for began in (since, *(at for at in self._starts if since <= at < lost_at)):
            ended = min((at for at in self._crashes if began <= at), default=lost_at)
            if min(ended, lost_at) - began > needed:
                return True
        return False

    def _acked_before_by_offset(self) -> list[Acked]:
        """Survivors by falling offset, each only if it was acknowledged before all above it."""
        surviving = sorted(
            (
                known.acked
                for known in self._known.values()
                if known.acked is not None and self._surviving.get(known.mark) == known.acked.offset
            ),
            key=lambda acked: -acked.offset,
        )
        earliest: list[Acked] = []
        for acked in surviving:
            if not earliest or acked.at < earliest[-1].at:
                earliest.append(acked)
        return earliest

    def _survivor_above(self, known: _Known) -> Acked | None:
        """The survivor at a higher offset that was acknowledged first."""
        index = bisect_left(self._earliest_above, -known.offset, key=lambda acked: -acked.offset)
        return self._earliest_above[index - 1] if index and known.offset >= 0 else None

    # What compaction may have taken

    def _superseded(self) -> set[str]:
        """Marks that nobody need find any more."""
        by_key: dict[bytes | None, list[_Known]] = {}
        for known in self._known.values():
            by_key.setdefault(known.key, []).append(known)
        in_doubt = self._tombstones_in_doubt()
        found: set[str] = set()
        for key, records in by_key.items():
            is_covered = False
            for known in sorted(records, key=lambda each: -each.offset):
                sent = self._view.sent[known.mark]
                is_covered |= not all(self._view.is_before(each, sent) for each in in_doubt.get(key, ()))
                if known.mark in self._surviving:
                    is_covered = True
                elif is_covered or (known.is_tombstone and self._view.may_be_removed(sent, self._final.at)):
                    found.add(known.mark)
                    is_covered = True
        return found

    def _tombstones_in_doubt(self) -> dict[bytes | None, list[Sent]]:
        """Tombstones that may have been written, seen by nobody and removed again, by key."""
        found: dict[bytes | None, list[Sent]] = {}
        for sent in self._view.sent.values():
            if sent.value is None and sent.topic == self._place[0] and sent.mark not in self._known:
                found.setdefault(sent.key, []).append(sent)
        return found


def _known(view: View, place: Place) -> dict[str, _Known]:
    """What was certainly written to a partition, by mark."""
    alive: dict[str, tuple[float, int]] = {}
    for sighting in view.sightings[place]:
        record = sighting.record
        since = alive.get(record.mark, (0.0, 0))[0]
        alive[record.mark] = (max(since, sighting.since), record.offset)
    found: dict[str, _Known] = {}
    for mark, (since, offset) in alive.items():
        sent = view.sent.get(mark)
        if sent is not None:
            acked = view.acked.get(mark)
            found[mark] = _Known(mark, offset, max(since, sent.at), acked, sent.key, sent.value is None)
    for acked in view.acked.values():
        if (acked.topic, acked.partition) == place and acked.mark not in found:
            sent = view.sent[acked.mark]
            found[acked.mark] = _Known(acked.mark, acked.offset, sent.at, acked, sent.key, sent.value is None)
    return found


def _has_between(times: list[float], since: float, until: float) -> bool:
    return any(since <= at <= until for at in times)
