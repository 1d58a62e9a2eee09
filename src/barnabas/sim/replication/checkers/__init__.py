"""The judges of replicated partitions: each a pure function of the history, knowing nothing of nodes."""

from __future__ import annotations

from barnabas.sim.checkers import check_all
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import History
from barnabas.sim.replication.checkers import equal, healing, kept, leadership, members
from barnabas.sim.replication.checkers.equal import Equal
from barnabas.sim.replication.checkers.healing import Healing
from barnabas.sim.replication.checkers.judge import judged
from barnabas.sim.replication.checkers.kept import Kept
from barnabas.sim.replication.checkers.leadership import Leadership
from barnabas.sim.replication.checkers.members import Members

NAMES = frozenset(each.NAME for each in (equal, healing, kept, leadership, members))


def check_replication(history: History) -> list[Violation]:
    """Everything that any of them has to say, and those of logs, in the order in which it showed."""
    found = judged(history, (Equal(), Kept(), Members(), Leadership(), Healing()))
    return sorted([*found, *check_all(history)], key=lambda violation: violation.at)
