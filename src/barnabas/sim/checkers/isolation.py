"""Whoever reads what is committed sees transactions that committed, and each of them whole.

- Nobody reads what was never sent, or in another place than it was sent to.
- A reader of committed records is given none of a transaction that was aborted, or whose commit was not asked
  for before.
- What such a reader has passed it has been given, if its transaction committed: every record of it between
  where the reader was and where it came to. Where records stand is what the last read of everything says.
- In the last read of what is committed there is every acknowledged record of a transaction whose commit was
  acknowledged; of one of which nobody knows how it ended, either all or none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from barnabas.sim.checkers.outcomes import NEVER, Outcomes
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import History
from barnabas.sim.transaction_events import OutputFinal, OutputRead, TxnWritten

NAME = "isolation"

_Place = tuple[str, int]


def check(history: History) -> list[Violation]:
    outcomes = Outcomes(history)
    reads = [*history.of(OutputRead), *(_as_read(final) for final in history.of(OutputFinal))]
    violations = [violation for read in reads for violation in _alien(read, outcomes)]
    committed = [read for read in reads if read.is_committed]
    for read in committed:
        violations += _undecided(read, outcomes)
    seen = {mark for read in committed for _, mark in read.marks}
    violations += _left_out(history, committed, outcomes, seen)
    return violations + _whole(history, outcomes)


def _as_read(final: OutputFinal) -> OutputRead:
    place, span = (final.topic, final.partition), (final.start_offset, final.end_offset)
    return OutputRead(
        final.at, final.asked_at, "the last read", final.is_committed, *place, *span, final.marks
    )


def _where(read: OutputRead, offset: int) -> str:
    return f"{read.topic}-{read.partition} offset {offset}, read by {read.session}"


def _alien(read: OutputRead, outcomes: Outcomes) -> Iterable[Violation]:
    for offset, mark in read.marks:
        writing = outcomes.writing.get(mark)
        if writing is None or writing.at > read.at:
            yield Violation(NAME, read.at, f"{_where(read, offset)}: nobody had sent {mark!r}")
        elif (writing.topic, writing.partition) != (read.topic, read.partition):
            what = f"{_where(read, offset)}: {mark!r} was sent to {writing.topic}-{writing.partition}"
            yield Violation(NAME, read.at, what)


def _undecided(read: OutputRead, outcomes: Outcomes) -> Iterable[Violation]:
    """What a reader of committed records should not have seen."""
    for offset, mark in read.marks:
        writing = outcomes.writing.get(mark)
        if writing is None:
            continue
        asked_at, aborted_at = outcomes.commit_sent_at(writing.txn), outcomes.aborted_at(writing.txn)
        if aborted_at is not None:
            what = f"{mark!r} is committed, but its transaction was aborted at {aborted_at:.3f} s"
        elif asked_at > read.at:
            when = "never" if asked_at == NEVER else f"only at {asked_at:.3f} s"
            what = f"{mark!r} is committed, but the commit of its transaction was asked for {when}"
        else:
            continue
        yield Violation(NAME, read.at, f"{_where(read, offset)}: {what}")
        return


def _left_out(
    history: History, committed: list[OutputRead], outcomes: Outcomes, seen: set[str]
) -> list[Violation]:
    done = {outcomes.writing[mark].txn for mark in seen if mark in outcomes.writing}
    done |= {txn for txn in outcomes.began if outcomes.committed_at(txn) < NEVER}
    standing: dict[_Place, list[tuple[int, str]]] = {}
    for final in history.of(OutputFinal):
        if not final.is_committed:
            standing[final.topic, final.partition] = [
                (offset, mark)
                for offset, mark in final.marks
                if mark in outcomes.writing and outcomes.writing[mark].txn in done
            ]
    violations = []
    for read in committed:
        there = standing.get((read.topic, read.partition), [])
        passed = there[bisect_left(there, (read.start,)) : bisect_left(there, (read.position,))]
        given = set(read.marks)
        missing = next((each for each in passed if each not in given), None)
        if missing is not None:
            what = (
                f"{_where(read, missing[0])}: came from {read.start} to {read.position} without "
                f"{missing[1]!r}, whose transaction committed"
            )
            violations.append(Violation(NAME, read.at, what))
    return violations


def _whole(history: History, outcomes: Outcomes) -> list[Violation]:
    finals = [final for final in history.of(OutputFinal) if final.is_committed]
    read_to_the_end = {(final.topic, final.partition) for final in finals}
    there = {mark for final in finals for _, mark in final.marks}
    written: dict[str, list[str]] = {}
    for event in history.of(TxnWritten):
        if (event.topic, event.partition) in read_to_the_end:
            written.setdefault(event.txn, []).extend(event.marks)
    at = max((final.at for final in finals), default=0.0)
    violations = []
    for txn, marks in written.items():
        missing = [mark for mark in marks if mark not in there]
        is_committed = outcomes.committed_at(txn) < NEVER
        if missing and (is_committed or len(missing) < len(marks)):
            what = "was acknowledged as committed" if is_committed else "is there in part"
            what = f"{txn} {what}, and {len(missing)} of its {len(marks)} records are not: {missing[:3]}"
            violations.append(Violation(NAME, at, what))
    return violations
