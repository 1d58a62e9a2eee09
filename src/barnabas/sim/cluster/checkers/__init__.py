"""The judges of a simulated cluster: each a pure function of the history, knowing nothing of nodes."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.cluster.checkers.admin import (
    check_changes,
    check_errors,
    check_producer_ids,
    check_reads,
    check_seen,
    check_topics,
)
from barnabas.sim.cluster.checkers.calm import check_calm, check_fenced
from barnabas.sim.cluster.checkers.drill import check_drill, check_superseded
from barnabas.sim.cluster.checkers.metadata import (
    check_backwards,
    check_committed,
    check_images,
    check_leaders,
    check_prefix,
)
from barnabas.sim.cluster.checkers.prompt import check_prompt
from barnabas.sim.history import History

CHECKERS: tuple[Callable[[History], list[Violation]], ...] = (
    check_leaders,
    check_images,
    check_backwards,
    check_prefix,
    check_committed,
    check_changes,
    check_seen,
    check_topics,
    check_errors,
    check_reads,
    check_producer_ids,
    check_fenced,
    check_calm,
    check_prompt,
    check_superseded,
    check_drill,
)


def check_cluster(history: History) -> list[Violation]:
    """Everything that any of them has to say, in the order in which it showed."""
    found = [violation for check in CHECKERS for violation in check(history)]
    return sorted(found, key=lambda violation: violation.at)
