"""How many may begin a second (`max.connection.creation.rate`); who comes sooner begins later, in order.

A bucket of tokens that holds a second's worth: whoever begins takes one, and where there is none left waits
for the one that will be there then. What is taken in advance is a debt, so that the next one waits longer.
"""

from __future__ import annotations

UNLIMITED = 2**31 - 1


class Pace:
    """Tokens, as many a second as are allowed; time is whoever asks's."""

    __slots__ = ("_last", "_tokens", "per_second")

    def __init__(self, per_second: int, now: float) -> None:
        self.per_second = per_second
        self._tokens = float(per_second)
        self._last = now

    def wait_seconds(self, now: float) -> float:
        """How long the next one has to wait; to ask is to take a token."""
        if self.per_second >= UNLIMITED:
            return 0.0
        rate = max(1, self.per_second)
        self._tokens = min(float(rate), self._tokens + (now - self._last) * rate) - 1
        self._last = now
        return max(0.0, -self._tokens / rate)
