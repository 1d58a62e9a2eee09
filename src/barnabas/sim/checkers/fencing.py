"""A transactional id has one producer: when a successor has begun, its predecessors are over.

A producer is older than another of the same id if it has an earlier epoch of the same producer id; with
another producer id, if it began before the other asked to begin.

- No two lives begin with the same producer id and epoch.
- When InitProducerId has succeeded, no request that an older producer sends after that is answered well.
- What an older producer asked to be committed only after that is never seen as committed.
"""

from __future__ import annotations

from barnabas.sim.checkers.outcomes import NEVER, Outcomes
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import History
from barnabas.sim.transaction_events import LifeBegan, OutputFinal, OutputRead, TxnAnswered

NAME = "fencing"
INIT = "InitProducerId"


def check(history: History) -> list[Violation]:
    lives: dict[str, list[LifeBegan]] = {}
    for began in history.of(LifeBegan):
        lives.setdefault(began.transactional_id, []).append(began)
    return _same(lives) + _answered(history, lives) + _committed(history, lives)


def _same(lives: dict[str, list[LifeBegan]]) -> list[Violation]:
    violations = []
    seen: dict[tuple[int, int], LifeBegan] = {}
    for began in (each for mine in lives.values() for each in mine):
        other = seen.setdefault((began.producer_id, began.epoch), began)
        if other is not began:
            what = (
                f"{began.life} begins with producer {began.producer_id} and epoch {began.epoch}, as "
                f"{other.life} did at {other.at:.3f} s"
            )
            violations.append(Violation(NAME, began.at, what))
    return violations


def _answered(history: History, lives: dict[str, list[LifeBegan]]) -> list[Violation]:
    violations = []
    for told in history.of(TxnAnswered):
        if told.error or told.api == INIT:
            continue
        mine = lives.get(told.transactional_id, [])
        after = _successor(mine, told.life, told.producer_id, told.epoch, told.asked_at)
        if after is not None:
            what = (
                f"{told.api} of {told.life} with epoch {told.epoch}, sent at {told.asked_at:.3f} s, was "
                f"answered well, although {after.life} had begun with epoch {after.epoch} at {after.at:.3f} s"
            )
            violations.append(Violation(NAME, told.at, what))
    return violations


def _successor(
    lives: list[LifeBegan], life: str, producer_id: int, epoch: int, sent_at: float
) -> LifeBegan | None:
    """One that had begun by then, and is younger."""
    mine = next((began for began in lives if began.life == life), None)
    for other in lives:
        if other.life == life or other.at > sent_at:
            continue
        if other.producer_id == producer_id:
            is_younger = other.epoch > epoch
        else:
            is_younger = mine is not None and mine.at < other.asked_at
        if is_younger:
            return other
    return None


def _committed(history: History, lives: dict[str, list[LifeBegan]]) -> list[Violation]:
    outcomes = Outcomes(history)
    seen: dict[str, tuple[float, str]] = {}
    for event in history.events:
        if isinstance(event, OutputRead | OutputFinal) and event.is_committed:
            for _, mark in event.marks:
                if mark in outcomes.writing:
                    seen.setdefault(outcomes.writing[mark].txn, (event.at, mark))
    violations = []
    for txn, (at, mark) in seen.items():
        began, asked_at = outcomes.began[txn], outcomes.commit_sent_at(txn)
        mine = lives.get(began.transactional_id, [])
        after = None
        if asked_at < NEVER:
            after = _successor(mine, began.life, began.producer_id, began.epoch, asked_at)
        if after is not None:
            what = (
                f"{mark!r} is committed, which was asked for at {asked_at:.3f} s, although {after.life} had "
                f"begun at {after.at:.3f} s"
            )
            violations.append(Violation(NAME, at, what))
    return violations
