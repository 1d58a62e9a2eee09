"""The high watermark and the log's start never go backwards, for any observer, unless power was lost.

Whatever is known at one moment bounds what is answered to a question asked later:

- an end offset that was answered, a position that a reader reached, and one past an offset acknowledged to an
  idempotent producer (which asks for acks=all) bound every later end offset from below;
- a start offset that was answered bounds every later start from below.

A power loss from the moment the earlier was asked for to the moment the later is answered excuses both: a
tail that was not synced may be gone, and deleted segments may be back.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from barnabas.sim.checkers.view import Place, View
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import Acked, FinalRead, History, OffsetSeen, Polled

NAME = "watermark"


class _Bound(NamedTuple):
    since: float
    at: float
    offset: int
    why: str


class _Question(NamedTuple):
    asked_at: float
    at: float
    offset: int
    who: str


def check(history: History) -> list[Violation]:
    view = View(history)
    ends, starts = _Line(), _Line()
    for event in history.events:
        _note(view, event, ends, starts)
    return ends.check(view, "end offset") + starts.check(view, "start offset")


class _Line:
    """What bounds an offset that only goes up, and who asked for it, by place."""

    def __init__(self) -> None:
        self._bounds: dict[Place, list[_Bound]] = {}
        self._questions: dict[Place, list[_Question]] = {}

    def bound(self, place: Place, since: float, at: float, offset: int, why: str) -> None:
        self._bounds.setdefault(place, []).append(_Bound(since, at, offset, why))

    def answer(self, place: Place, asked_at: float, at: float, offset: int, who: str) -> None:
        self._questions.setdefault(place, []).append(_Question(asked_at, at, offset, who))
        self.bound(place, asked_at, at, offset, f"{who} was told so")

    def check(self, view: View, what: str) -> list[Violation]:
        violations = []
        for place, questions in self._questions.items():
            highest = _Highest(view, self._bounds[place])
            for question in questions:
                bound = highest.before(question)
                if bound is not None and bound.offset > question.offset:
                    text = (
                        f"{place[0]}-{place[1]}: the {what} is {question.offset} to {question.who}, who "
                        f"asked at {question.asked_at:.3f} s, but was at least {bound.offset} at "
                        f"{bound.at:.3f} s: {bound.why}; no power was lost since {bound.since:.3f} s"
                    )
                    violations.append(Violation(NAME, question.at, text))
        return violations


class _Highest:
    """The highest bound up to any moment, of those that no power loss has undone."""

    def __init__(self, view: View, bounds: list[_Bound]) -> None:
        self._view = view
        self._by_era: dict[int, tuple[list[float], list[_Bound]]] = {}
        for bound in sorted(bounds, key=lambda each: each.at):
            times, highest = self._by_era.setdefault(view.era_after(bound.since), ([], []))
            times.append(bound.at)
            highest.append(max(highest[-1], bound, key=lambda each: each.offset) if highest else bound)

    def before(self, question: _Question) -> _Bound | None:
        times, highest = self._by_era.get(self._view.era_until(question.at), ([], []))
        index = bisect_right(times, question.asked_at)
        return highest[index - 1] if index else None


def _note(view: View, event: object, ends: _Line, starts: _Line) -> None:
    if isinstance(event, OffsetSeen):
        line = ends if event.kind == "end" else starts
        if event.topic in view.topics:
            place = (event.topic, event.partition)
            line.answer(place, event.asked_at, event.at, event.offset, event.observer)
    elif isinstance(event, Polled):
        if event.topic in view.topics:
            since, who = view.sessions[event.session].began.at, f"{event.session} had read so far"
            ends.bound((event.topic, event.partition), since, event.at, event.position, who)
    elif isinstance(event, Acked):
        sent = view.sent[event.mark]
        if event.topic in view.topics and sent.is_idempotent and event.offset >= 0:
            why = f"{event.mark!r} was acknowledged at {event.offset}"
            ends.bound((event.topic, event.partition), sent.at, event.at, event.offset + 1, why)
    elif isinstance(event, FinalRead) and event.topic in view.topics:
        place = (event.topic, event.partition)
        ends.answer(place, event.asked_at, event.at, event.end_offset, "the last read")
        starts.answer(place, event.asked_at, event.at, event.start_offset, "the last read")
