"""The clock of one simulated machine: monotonic time is the loop's, wall time drifts and can be set."""

from __future__ import annotations

import asyncio

START_MS = 1_700_000_000_000


class SimClock:
    """`drift` is the part by which wall time goes too fast (or too slow, below 0); `away_ms` is how far it
    has been set forward in all (or back, below 0)."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, start_ms: int = START_MS, drift: float = 0.0
    ) -> None:
        self._loop = loop
        self._start_ms = start_ms
        self.away_ms = 0
        self._drift = drift
        self.monotonic = loop.time

    def wall_ms(self) -> int:
        return self._start_ms + self.away_ms + int(self._loop.time() * (1 + self._drift) * 1000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def jump_ms(self, milliseconds: int) -> None:
        """Set wall time forward, or back; monotonic time goes on as it was."""
        self.away_ms += milliseconds
