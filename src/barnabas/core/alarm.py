"""A timer on an injected clock. It calls back once, at the earliest time that was set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.core.clock import Clock


class Alarm:
    """Calls `ring` once, at the earliest of the times that were set."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._at = 0.0
        self._task: asyncio.Task[None] | None = None

    def set(self, at: float) -> None:
        """Ring at `at` or earlier, in monotonic seconds."""
        if self._task is None or at < self._at:
            self.clear()
            self._at = at
            self._task = asyncio.get_running_loop().create_task(self._sleep())

    def clear(self) -> None:
        """Cancel the call."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _sleep(self) -> None:
        await self._clock.sleep(max(0.0, self._at - self._clock.monotonic()))
        self._task = None
        self._ring()
