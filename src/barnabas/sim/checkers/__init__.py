"""What must hold whatever happens: one file a promise, each a pure function of a history.

A checker knows what clients and the nemesis did and saw, and nothing of how the broker works.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.sim.checkers import (
    commits,
    compacted,
    duplicates,
    exactly_once,
    fencing,
    isolation,
    liveness,
    lookups,
    lost,
    offsets,
    order,
    ownership,
    readers,
    retention,
    settling,
    stable,
    watermark,
)
from barnabas.sim.checkers.violation import Violation
from barnabas.sim.history import History

__all__ = ["CHECKERS", "Violation", "check_all"]

CHECKERS: dict[str, Callable[[History], list[Violation]]] = {
    module.NAME: module.check
    for module in (
        lost,
        duplicates,
        order,
        offsets,
        watermark,
        lookups,
        readers,
        retention,
        compacted,
        liveness,
        ownership,
        commits,
        isolation,
        exactly_once,
        fencing,
        stable,
        settling,
    )
}


def check_all(history: History) -> list[Violation]:
    """Every broken promise, in the order of time."""
    violations = [violation for check in CHECKERS.values() for violation in check(history)]
    return sorted(violations, key=lambda violation: violation.at)
