"""The clock interface. Code above reads time only through a `Clock` that is passed in."""

from __future__ import annotations

import asyncio
import heapq
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for timestamps, monotonic time for durations."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; the value may jump in either direction."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""


class SystemClock:
    """The operating system's clocks."""

    # A static method, so that no Python frame is added: the disk reads the clock twice an append.
    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """Time that moves only when a test moves it.

    `advance` wakes sleepers in the order in which they are due, those due at the same time in the order of
    their calls. They run on the next turn of the loop; a sleeper that sleeps again counts from the clock's
    time then.
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
        """Move the time forward."""
        if seconds < 0:
            raise ValueError(f"monotonic time cannot go back by {-seconds} seconds; jump_ms moves wall time")
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)

    def jump_ms(self, milliseconds: int) -> None:
        """Move wall time forward or back; monotonic time does not change."""
        self._wall_offset_ms += milliseconds
