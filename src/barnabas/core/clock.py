"""The clock seam. The core never asks the operating system for the time; it is told."""

from __future__ import annotations

import asyncio
import heapq
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what users see, monotonic time for how long things take."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, which may jump in either direction."""

    def monotonic(self) -> float:
        """Seconds that only ever go forward."""

    async def sleep(self, seconds: float) -> None:
        """Return that much later."""


class SystemClock:
    """The machine's own clocks."""

    # Bound as it is, without a Python frame around it: the disk asks twice an append.
    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """Time that stands still until a test moves it.

    `advance` wakes sleepers in the order they are due, and among equals in the order they lay down. They run
    when the loop next does: one that sleeps again counts from where the clock stands by then.
    """

    def __init__(self, start_ms: int = 0) -> None:
        self._wall_offset_ms = start_ms
        self._now = 0.0
        self._lain_down = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def wall_ms(self) -> int:
        return self._wall_offset_ms + round(self._now * 1000)

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lain_down += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._lain_down, woken))
        await woken

    def advance(self, seconds: float) -> None:
        """Let that much time pass."""
        if seconds < 0:
            raise ValueError(f"monotonic time cannot go back by {-seconds} seconds; jump_ms moves wall time")
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)

    def jump_ms(self, milliseconds: int) -> None:
        """Set wall time forward, or back, while monotonic time stands."""
        self._wall_offset_ms += milliseconds
