"""Read, process, write: every input record has exactly one committed output, once it has been worked off.

Judged is the last read of what is committed, against the last read of the input and how far the loops have
committed that they have come: an output names the input record that it was made of. Below what is committed
each input has one output, beyond it none.
"""

from __future__ import annotations

from collections import Counter

from barnabas.sim.checkers.outcomes import Outcomes
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import FinalRead, History
from barnabas.sim.transaction_events import Drained, OutputFinal, OutputMade

NAME = "exactly-once"


def check(history: History) -> list[Violation]:
    finals = [final for final in history.of(OutputFinal) if final.is_committed]
    wanted = sum(made.partitions for made in history.of(OutputMade))
    if not finals or len(finals) < wanted:
        return []  # that it could not be read is for others to say
    outcomes = Outcomes(history)
    marks = [mark for final in finals for _, mark in final.marks if mark in outcomes.writing]
    outputs: dict[str, list[str]] = {}
    for mark in marks:
        if source := outcomes.writing[mark].source:
            outputs.setdefault(source, []).append(mark)
    twice = [mark for mark, count in Counter(marks).items() if count > 1]
    at = max(final.at for final in finals)
    violations = [Violation(NAME, at, f"{mark!r} is committed at several offsets") for mark in twice]
    return violations + _missing(history, outputs) + _repeated(outputs, at)


def _repeated(outputs: dict[str, list[str]], at: float) -> list[Violation]:
    return [
        Violation(NAME, at, f"input {source} has {len(marks)} committed outputs: {', '.join(marks)}")
        for source, marks in outputs.items()
        if len(marks) > 1
    ]


def _missing(history: History, outputs: dict[str, list[str]]) -> list[Violation]:
    inputs = {(final.topic, final.partition): final for final in history.of(FinalRead)}
    violations = []
    for drained in history.of(Drained):
        final = inputs.get((drained.topic, drained.partition))
        if final is None or not drained.is_done:
            continue
        for record in final.records:
            source = f"{drained.topic}-{drained.partition}@{record.offset}"
            if record.offset < drained.end_offset and source not in outputs:
                what = f"input {source} was worked off by {drained.group} and has no committed output"
                violations.append(Violation(NAME, final.at, what))
                break
    return violations
