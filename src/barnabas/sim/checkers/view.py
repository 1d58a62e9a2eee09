"""A history sorted for the checkers: who sent what, where it was seen, when it may have been lost.

The eras. A power loss may take what was not synced, so what was seen before one says nothing certain about
after; where partitions are replicated so does one beyond the budget (budget.py). An observation was true at
some moment of its span (from asking to noticing), so two observations may contradict each other only if a
loss lies within the stretch that both spans cover together.

Which acknowledgements count. One that the leader alone has given (acks=1) says nothing of a partition with
several replicas, as every partition has while it moves, and acks=0 nothing at all: such a record is known
when somebody has read it.

A topic that was ever asked to be deleted, or made twice, promises nothing but that what is read was sent; it
is not in `topics`.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from typing import NamedTuple

from barnabas.sim.checkers.budget import NONE, Doubts, doubts_of, doubts_of_one
from barnabas.sim.history import (
    ALL,
    Acked,
    Failed,
    Fault,
    FinalRead,
    History,
    Kept,
    Polled,
    Read,
    Sent,
    SessionBegan,
    SessionEnded,
    Started,
    TopicDeleting,
    TopicFacts,
    TopicMade,
)
from barnabas.sim.replication.events import PartitionSeen

Place = tuple[str, int]  # topic, partition
CLOCK_FAULT = "clock-jump"
REFUSED = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class Sighting(NamedTuple):
    """Somebody read a record that the broker sent between `since` and `until`."""

    since: float
    until: float
    who: str
    record: Kept


class Session:
    """One reader's way through one partition."""

    def __init__(self, began: SessionBegan) -> None:
        self.began = began
        self.reads: list[Read] = []
        self.position = began.start_offset
        self.last_at = began.at
        self.ended: SessionEnded | None = None


class View:
    """What happened, by topic, record, place and session. `settled` has every acknowledgement, `acked` those
    that promise something. `is_replicated`: several nodes have the partitions, and leaders change."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.topics: dict[str, TopicFacts] = {}
        self.sent: dict[str, Sent] = {}
        self.acked: dict[str, Acked] = {}
        self.settled: dict[str, Acked] = {}
        self.failed: dict[str, Failed] = {}
        self.sessions: dict[str, Session] = {}
        self.finals: dict[Place, FinalRead] = {}
        self.starts: list[float] = []
        self.clock_jumps: list[float] = []
        self._unstable: set[str] = set()
        self._copied: set[Place] = set()  # partitions that have had several replicas at some time
        self._doubts = doubts_of(history)
        self.is_replicated = self._doubts is not None
        self._sort()
        for topic in self._unstable:
            self.topics.pop(topic, None)
        self.acked = {mark: acked for mark, acked in self.settled.items() if self._is_promised(acked)}

    def _sort(self) -> None:
        for event in self.history.events:
            if isinstance(event, Read):
                session = self.sessions[event.session]
                session.reads.append(event)
                session.last_at = event.at
            elif isinstance(event, Polled):
                session = self.sessions[event.session]
                session.position, session.last_at = event.position, event.at
            elif isinstance(event, Sent):
                self.sent[event.mark] = event
            elif isinstance(event, Acked):
                self.settled[event.mark] = event
            elif isinstance(event, Failed):
                self.failed[event.mark] = event
            elif isinstance(event, SessionBegan):
                self.sessions[event.session] = Session(event)
            elif isinstance(event, SessionEnded):
                self.sessions[event.session].ended = event
            elif isinstance(event, FinalRead):
                self.finals[(event.topic, event.partition)] = event
            else:
                self._sort_rare(event)

    def _sort_rare(self, event: object) -> None:
        if isinstance(event, Started):
            self.starts.append(event.at)
        elif isinstance(event, Fault) and event.kind == CLOCK_FAULT:
            self.clock_jumps.append(event.at)
        elif isinstance(event, TopicDeleting):
            self._unstable.add(event.topic)
        elif isinstance(event, TopicMade):
            if event.topic in self.topics:
                self._unstable.add(event.topic)
            self.topics[event.topic] = event.facts
        elif isinstance(event, PartitionSeen) and len(event.replicas) > 1:
            self._copied.add((event.topic, event.partition))

    def _is_promised(self, acked: Acked) -> bool:
        sent = self.sent.get(acked.mark)
        acks = ALL if sent is None else sent.acks
        return acks == ALL or (acks > 0 and (acked.topic, acked.partition) not in self._copied)

    def doubts(self, place: Place) -> Doubts:
        """When what was written to a partition may have been lost."""
        return self._one if self._doubts is None else self._doubts.get(place, NONE)

    @cached_property
    def _one(self) -> Doubts:
        return doubts_of_one(self.history)

    def may_lose(self, place: Place, since: float, until: float) -> bool:
        """Whether something of a partition may have been lost between the two, themselves included."""
        return self.doubts(place).has_any(since, until)

    def topic_may_lose(self, topic: str, since: float, until: float) -> bool:
        """Whether some partition of a topic may have lost something."""
        facts = self.topics.get(topic)
        count = 1 if facts is None else facts.partitions
        return any(self.may_lose((topic, each), since, until) for each in range(count))

    def was_forgotten(self, producer: str, topic: str, since: float, until: float) -> bool:
        """Whether a start, or another leader, may have forgotten batches of a producer, and said so: of a
        topic that retention or compaction shortens, the log tells only the latest. The producer numbers what
        is open anew then, though some of it may have been written."""
        facts = self.topics.get(topic)
        if facts is None or not (facts.is_trimmed or facts.is_compacted):
            return False
        return any(
            since < refused.at <= until and self._has_begun(self.sent[refused.mark].at, refused.at)
            for refused in self._refused.get((producer, topic), ())
        )

    def _has_begun(self, since: float, until: float) -> bool:
        return self.is_replicated or _has_between(self.starts, since, until)

    @cached_property
    def _refused(self) -> dict[tuple[str, str], list[Failed]]:
        """Records that were refused because of their number, by producer and topic."""
        found: dict[tuple[str, str], list[Failed]] = {}
        for mark, failed in self.failed.items():
            if REFUSED in failed.error:
                sent = self.sent[mark]
                found.setdefault((sent.producer, sent.topic), []).append(failed)
        return found

    def has_clock_jump(self, since: float, until: float) -> bool:
        return _has_between(self.clock_jumps, since, until)

    def may_be_removed(self, tombstone: Sent, until: float) -> bool:
        """Whether compaction may have removed a tombstone by then: its time is over."""
        if self.has_clock_jump(tombstone.at, until):
            return True
        return (until - tombstone.at) * 1000 >= self.topics[tombstone.topic].delete_retention_ms

    def is_before(self, one: Sent, other: Sent) -> bool:
        """Whether one stands before the other wherever both stand: an idempotent producer's do in order."""
        return one.is_idempotent and one.producer == other.producer and one.number < other.number

    def places(self) -> list[Place]:
        """The partitions of which something is promised."""
        return [(topic, each) for topic, facts in self.topics.items() for each in range(facts.partitions)]

    @cached_property
    def sightings(self) -> dict[Place, list[Sighting]]:
        """Every record that was read, by whomever, by place."""
        found: dict[Place, list[Sighting]] = {place: [] for place in self.places()}
        for session in self.sessions.values():
            began = session.began
            seen = found.get((began.topic, began.partition))
            if seen is not None:
                seen += [Sighting(began.at, each.at, began.reader, each.record) for each in session.reads]
        for place, final in self.finals.items():
            if place in found:
                found[place] += [
                    Sighting(final.asked_at, final.at, "the last read", r) for r in final.records
                ]
        return found

    @cached_property
    def acks(self) -> dict[Place, list[Acked]]:
        """Acknowledgements that name an offset, by place."""
        found: dict[Place, list[Acked]] = {place: [] for place in self.places()}
        for acked in self.acked.values():
            place = (acked.topic, acked.partition)
            if place in found and acked.offset >= 0:
                found[place].append(acked)
        return found

    @cached_property
    def sent_by_key(self) -> dict[tuple[str, bytes | None], list[Sent]]:
        """What was handed over, by topic and key."""
        found: dict[tuple[str, bytes | None], list[Sent]] = {}
        for sent in self.sent.values():
            found.setdefault((sent.topic, sent.key), []).append(sent)
        return found

    @cached_property
    def stands_at(self) -> dict[str, tuple[int, int]]:
        """In which partition and at which offset each record was last seen, by mark."""
        found = {
            acked.mark: (partition, acked.offset)
            for (_, partition), acks in self.acks.items()
            for acked in acks
        }
        for (_, partition), sightings in self.sightings.items():
            found.update({each.record.mark: (partition, each.record.offset) for each in sightings})
        return found

    def known_since(self, place: Place) -> dict[int, float]:
        """By offset, the earliest time since when what the last read found there is known to be there."""
        final = self.finals.get(place)
        if final is None:
            return {}
        at_end = {record.offset: record for record in final.records}
        known = dict.fromkeys(at_end, final.at)
        for sighting in self.sightings.get(place, ()):
            kept = sighting.record
            if at_end.get(kept.offset) == kept:
                known[kept.offset] = min(known[kept.offset], sighting.until)
        for acked in self.acks.get(place, ()):
            there = at_end.get(acked.offset)
            if there is not None and there.mark == acked.mark:
                known[acked.offset] = min(known[acked.offset], acked.at)
        return known


def _has_between(times: list[float], since: float, until: float) -> bool:
    index = bisect_left(times, since)
    return index < len(times) and times[index] <= until
