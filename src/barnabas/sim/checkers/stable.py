"""Where what is committed ends, the last stable offset, never goes back and never passes an open
transaction.

A transaction is certainly open in a partition from when a record of it was acknowledged there until its
commit was asked for, if that commit was acknowledged: one that was aborted meanwhile cannot be committed.
As long as it is open, neither the stable offset nor the position of a reader of committed records is beyond
its first record. What is told at one time bounds what is told to whoever asks later, unless power was lost
in between.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.sim.checkers.outcomes import NEVER, Outcomes
from barnabas.sim.checkers.view import View
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import History
from barnabas.sim.transaction_events import OutputRead, StableSeen, TxnWritten

NAME = "stable"

_Place = tuple[str, int]


class _Open(NamedTuple):
    since: float
    until: float
    offset: int
    txn: str


class _Told(NamedTuple):
    at: float
    asked_at: float
    who: str
    offset: int
    is_question: bool


def check(history: History) -> list[Violation]:
    told = _told(history)
    opened = _open(history)
    view = View(history)
    violations = []
    for place, answers in told.items():
        violations += _passed(place, answers, opened.get(place, []))
        violations += _gone_back(place, answers, view)
    return violations


def _told(history: History) -> dict[_Place, list[_Told]]:
    found: dict[_Place, list[_Told]] = {}
    for event in history.events:
        if isinstance(event, StableSeen):
            one = _Told(event.at, event.asked_at, event.observer, event.offset, True)
        elif isinstance(event, OutputRead) and event.is_committed:
            one = _Told(event.at, event.asked_at, event.session, event.position, False)
        else:
            continue
        found.setdefault((event.topic, event.partition), []).append(one)
    return found


def _open(history: History) -> dict[_Place, list[_Open]]:
    outcomes = Outcomes(history)
    found: dict[tuple[_Place, str], _Open] = {}
    for event in history.of(TxnWritten):
        if event.first_offset < 0 or outcomes.committed_at(event.txn) == NEVER:
            continue
        place = (event.topic, event.partition)
        one = _Open(event.at, outcomes.commit_sent_at(event.txn), event.first_offset, event.txn)
        found.setdefault((place, event.txn), one)
    by_place: dict[_Place, list[_Open]] = {}
    for (place, _), one in found.items():
        by_place.setdefault(place, []).append(one)
    return by_place


def _passed(place: _Place, answers: list[_Told], opened: list[_Open]) -> list[Violation]:
    violations = []
    for told in answers:
        for one in opened:
            if one.since <= told.asked_at and told.at <= one.until and told.offset > one.offset:
                what = (
                    f"{place[0]}-{place[1]}: {told.who}, who asked at {told.asked_at:.3f} s, came to "
                    f"{told.offset}, but {one.txn} is open there at {one.offset} from {one.since:.3f} to "
                    f"{one.until:.3f} s"
                )
                violations.append(Violation(NAME, told.at, what))
                break
    return violations


def _gone_back(place: _Place, answers: list[_Told], view: View) -> list[Violation]:
    """A position that was reached bounds the answers to questions, not other readers, who begin anew."""
    highest: _Told | None = None
    waiting: list[_Told] = []  # told, but not before everything that was asked meanwhile
    violations = []
    for told in sorted(answers, key=lambda each: each.asked_at):
        for earlier in [each for each in waiting if each.at <= told.asked_at]:
            waiting.remove(earlier)
            if highest is None or earlier.offset > highest.offset:
                highest = earlier
        is_back = told.is_question and highest is not None and told.offset < highest.offset
        if is_back and highest is not None and not view.may_lose(place, highest.asked_at, told.at):
            what = (
                f"{place[0]}-{place[1]}: the stable offset is {told.offset} to {told.who}, who asked at "
                f"{told.asked_at:.3f} s, but was at least {highest.offset} at {highest.at:.3f} s"
            )
            violations.append(Violation(NAME, told.at, what))
        waiting.append(told)
    return violations
