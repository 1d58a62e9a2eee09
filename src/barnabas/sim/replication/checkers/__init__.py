"""The judges of replicated partitions: each a pure function of the history, knowing nothing of nodes."""

from __future__ import annotations

from barnabas.sim.checkers import check_all
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import History
from barnabas.sim.replication.checkers import (
    equal,
    healing,
    kept,
    leadership,
    members,
    moves,
    serving,
    steady,
)
from barnabas.sim.replication.checkers.equal import Equal
from barnabas.sim.replication.checkers.healing import Healing
from barnabas.sim.replication.checkers.judge import judged
from barnabas.sim.replication.checkers.kept import Kept
from barnabas.sim.replication.checkers.leadership import Leadership
from barnabas.sim.replication.checkers.members import Members
from barnabas.sim.replication.checkers.moves import Moves
from barnabas.sim.replication.events import DrillBegan

_ALL = (equal, healing, kept, leadership, members, moves, serving, steady)
NAMES = frozenset(each.NAME for each in _ALL)


def check_replication(history: History) -> list[Violation]:
    """Everything that any of them has to say, and those of logs, in the order in which it showed. The drill
    that comes when everything has been read is judged by itself."""
    events = history.events
    end = next((i for i, each in enumerate(events) if isinstance(each, DrillBegan)), len(events))
    before = History(events=events[:end])
    found = judged(before, (Equal(), Kept(), Members(), Leadership(), Healing(), Moves()))
    found += check_all(before) + serving.check(events[end:])
    return sorted(found, key=lambda violation: violation.at)
