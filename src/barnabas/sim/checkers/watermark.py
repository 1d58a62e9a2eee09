"""The high watermark and the log's start never go backwards, for any observer, unless power was lost.

Whatever is known at one moment bounds what is answered to a question asked later:

- an end offset that was answered, a position that a reader reached, and one past an offset acknowledged to an
  idempotent producer (which asks for acks=all) bound every later end offset from below;
- a start offset that was answered bounds every later start from below.

A loss (view.py) from the moment the earlier was asked for to the moment the later is answered excuses both: a
tail that was not synced may be gone, and deleted segments may be back.

Of a replicated partition what is known of one leader bounds what that leader tells, and later ones. A leader
that was replaced and does not know it yet tells what it was, as in Kafka: to clients that do not know it
either. So a bound has the epoch of the record that it is about, or of the leader who told; a question has
that of the leader who answered it, or of an earlier one, or it is not judged. Retention is each replica's
own: another leader may have kept what the last one took away.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from barnabas.sim.checkers.view import Place, View
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import NO_EPOCH, Acked, FinalRead, History, OffsetSeen, Polled, Read

NAME = "watermark"


LATEST_EPOCH = 1 << 31  # of whoever leads when the faults are long over


class _Bound(NamedTuple):
    since: float
    at: float
    offset: int
    why: str
    epoch: int


class _Question(NamedTuple):
    asked_at: float
    at: float
    offset: int
    who: str
    epoch: int


def check(history: History) -> list[Violation]:
    view = View(history)
    ends, starts = _Line(), _Line(of_one_leader=True)
    notes = _Notes(view, ends, starts)
    for event in history.events:
        notes.take(event)
    return ends.check(view, "end offset") + starts.check(view, "start offset")


class _Line:
    """What bounds an offset that only goes up, and who asked for it, by place. `of_one_leader`: where leaders
    change each has its own."""

    def __init__(self, *, of_one_leader: bool = False) -> None:
        self._of_one_leader = of_one_leader
        self._bounds: dict[Place, list[_Bound]] = {}
        self._questions: dict[Place, list[_Question]] = {}

    def bound(self, place: Place, since: float, at: float, offset: int, why: str, epoch: int) -> None:
        self._bounds.setdefault(place, []).append(_Bound(since, at, offset, why, epoch))

    def answer(self, place: Place, asked_at: float, at: float, offset: int, who: str, epoch: int) -> None:
        self._questions.setdefault(place, []).append(_Question(asked_at, at, offset, who, epoch))
        self.bound(place, asked_at, at, offset, f"{who} was told so", epoch)

    def check(self, view: View, what: str) -> list[Violation]:
        violations = []
        for place, questions in self._questions.items():
            highest = _Highest(view, place, self._bounds[place])
            for question in questions:
                bound = highest.before(question, of_one_leader=self._of_one_leader)
                if bound is not None and bound.offset > question.offset:
                    text = (
                        f"{place[0]}-{place[1]}: the {what} is {question.offset} to {question.who}, who "
                        f"asked at {question.asked_at:.3f} s, but was at least {bound.offset} at "
                        f"{bound.at:.3f} s: {bound.why}; nothing can be lost since {bound.since:.3f} s"
                    )
                    violations.append(Violation(NAME, question.at, text))
        return violations


class _Highest:
    """The highest bound up to any moment, by the epoch of the bound, of those that no loss has undone."""

    def __init__(self, view: View, place: Place, bounds: list[_Bound]) -> None:
        self._doubts = doubts = view.doubts(place)
        self._is_replicated = view.is_replicated
        self._by_era: dict[int, dict[int, tuple[list[float], list[_Bound]]]] = {}
        for bound in sorted(bounds, key=lambda each: each.at):
            by_epoch = self._by_era.setdefault(doubts.era_after(bound.since), {})
            times, highest = by_epoch.setdefault(bound.epoch if self._is_replicated else NO_EPOCH, ([], []))
            times.append(bound.at)
            highest.append(max(highest[-1], bound, key=lambda each: each.offset) if highest else bound)

    def before(self, question: _Question, *, of_one_leader: bool) -> _Bound | None:
        found = None
        by_epoch = self._by_era.get(self._doubts.era_until(question.at), {})
        for epoch, (times, highest) in by_epoch.items():
            is_bound = epoch == question.epoch if of_one_leader else epoch <= question.epoch
            if self._is_replicated and not is_bound:
                continue
            index = bisect_right(times, question.asked_at)
            if index and (found is None or found.offset < highest[index - 1].offset):
                found = highest[index - 1]
        return found


class _Notes:
    """What is known of offsets, put into lines."""

    def __init__(self, view: View, ends: _Line, starts: _Line) -> None:
        self._view, self._ends, self._starts = view, ends, starts
        self._read_epochs: dict[str, int] = {}  # by session: of what it read last
        self._epochs = {
            sighting.record.mark: sighting.record.leader_epoch
            for sightings in (view.sightings.values() if view.is_replicated else ())
            for sighting in sightings
        }

    def take(self, event: object) -> None:
        """The next event."""
        if isinstance(event, Read):
            self._read_epochs[event.session] = event.record.leader_epoch
        elif isinstance(event, OffsetSeen):
            self._seen(event)
        elif isinstance(event, Polled):
            self._polled(event)
        elif isinstance(event, Acked):
            self._acked(event)
        elif isinstance(event, FinalRead) and event.topic in self._view.topics:
            place, span = (event.topic, event.partition), (event.asked_at, event.at)
            self._ends.answer(place, *span, event.end_offset, "the last read", LATEST_EPOCH)
            self._starts.answer(place, *span, event.start_offset, "the last read", LATEST_EPOCH)

    def _seen(self, event: OffsetSeen) -> None:
        line = self._ends if event.kind == "end" else self._starts
        if event.topic in self._view.topics:
            place, span = (event.topic, event.partition), (event.asked_at, event.at)
            line.answer(place, *span, event.offset, event.observer, event.asked_of)

    def _polled(self, event: Polled) -> None:
        if event.topic in self._view.topics:
            since, who = self._view.sessions[event.session].began.at, f"{event.session} had read so far"
            epoch = self._read_epochs.get(event.session, LATEST_EPOCH)
            self._ends.bound((event.topic, event.partition), since, event.at, event.position, who, epoch)

    def _acked(self, event: Acked) -> None:
        view, sent = self._view, self._view.sent[event.mark]
        if event.topic in view.topics and sent.is_idempotent and event.offset >= 0:
            why = f"{event.mark!r} was acknowledged at {event.offset}"
            epoch = self._epochs.get(event.mark, LATEST_EPOCH)
            place = (event.topic, event.partition)
            self._ends.bound(place, sent.at, event.at, event.offset + 1, why, epoch)
