"""Invariants of the core and its peers. If one does not hold, the node stops.

All of them go through `require`, so that the simulator can switch them off: its checkers must find the
violations, too.
"""

from __future__ import annotations

from barnabas.core.errors import InvariantViolation


def require(holds: bool, what: str) -> None:
    """Stop the node unless `holds`."""
    if not holds:
        raise InvariantViolation(what)
