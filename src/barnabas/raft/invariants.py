"""What the core takes for granted of itself and of its peers. Where that does not hold, the node stops.

All of them go through `require`, so that the simulator can switch them off: what they guard must also be
found by its checkers.
"""

from __future__ import annotations

from barnabas.core.errors import InvariantViolation


def require(holds: bool, what: str) -> None:
    """Stop the node unless this holds."""
    if not holds:
        raise InvariantViolation(what)
