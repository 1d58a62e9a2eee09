"""The rate limit of new connections (`max.connection.creation.rate`); beyond it connections are delayed.

A token bucket that holds the tokens of one second. A connection takes one token. Without a token it takes one
in advance and waits until that token is due, so that the next connection waits longer.
"""

from __future__ import annotations

UNLIMITED = 2**31 - 1


class Pace:
    """A token bucket; the caller gives the time."""

    __slots__ = ("_last", "_tokens", "per_second")

    def __init__(self, per_second: int, now: float) -> None:
        self.per_second = per_second
        self._tokens = float(per_second)
        self._last = now

    def wait_seconds(self, now: float) -> float:
        """Take a token; returns how long to wait until it is due."""
        if self.per_second >= UNLIMITED:
            return 0.0
        rate = max(1, self.per_second)
        self._tokens = min(float(rate), self._tokens + (now - self._last) * rate) - 1
        self._last = now
        return max(0.0, -self._tokens / rate)
