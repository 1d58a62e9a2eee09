"""While all is well, every change that is asked for is answered, within `ANSWERED_S`.

Under faults a change may be left without an answer, and its client gives up. All is well from when every
broker shows the whole cluster until the drill begins, but for `QUIET_S` after a voter was added or removed,
another node leads, or a process begins, and while a node is down: a stop that was asked for under faults may
end later.
"""

from __future__ import annotations

from math import inf

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.cluster.checkers.timeline import changes
from barnabas.sim.cluster.events import OPEN, Calm, Drill, Led, LogSeen, VoterChanged
from barnabas.sim.history import Crash, History, Started

NAME = "prompt"
ANSWERED_S = 2.0
QUIET_S = 5.0
_STIRS = (Crash, Started, Led, VoterChanged)


def check_prompt(history: History) -> list[Violation]:
    began = {each.broker for each in history.of(Calm) if each.what == "began"}
    whole = {each.broker: each.at for each in history.of(Calm) if each.what == "whole"}
    if not whole or set(whole) != began:
        return []
    since = max(whole.values())
    until = min((each.at for each in history.of(Drill)), default=inf)
    stirred = [(each.at, each.at) for each in history.events if isinstance(each, _STIRS)] + _down(history)
    violations = []
    for asked, answered in changes(history):
        late_at = asked.at + ANSWERED_S
        is_well = since <= asked.at and late_at < until
        is_quiet = not any(asked.at - QUIET_S <= end and begin <= late_at for begin, end in stirred)
        if is_well and is_quiet and (answered.error == OPEN or answered.at > late_at):
            what = (
                f"change {asked.number} of {asked.client} at {asked.broker}, {asked.what} {asked.topic}, "
                "is not answered, and all is well"
            )
            violations.append(Violation(NAME, late_at, what))
    return violations


def _down(history: History) -> list[tuple[float, float]]:
    """When a node had no process that served: from the end of one until the next has started."""
    started = list(history.of(Started))
    return [
        (
            ended.at,
            min((each.at for each in started if each.node == ended.node and each.at > ended.at), default=inf),
        )
        for ended in history.of(LogSeen)
    ]
