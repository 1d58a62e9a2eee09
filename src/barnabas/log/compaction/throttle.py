"""The rate limit of compaction, and the point at which a compaction is cancelled.

A compaction calls this with the size of every portion before it reads or writes it, and waits here:
`log.cleaner.io.max.bytes.per.second` holds on average. A compaction is also cancelled here: between two
portions, when no change of the log is half-done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError

# shorter pauses are accumulated: a timer costs more than they are worth
_WORTH_A_PAUSE_SECONDS = 0.05


class GivenUp(BarnabasError):
    """The compaction in progress was cancelled; the log is unchanged."""


class Throttle:
    """A compaction waits here between two portions; one at a time."""

    def __init__(self, clock: Clock, max_bytes_per_second: Callable[[], float]) -> None:
        self._clock = clock
        self._max_bytes_per_second = max_bytes_per_second
        self._paid_until = 0.0  # when all portions so far are within the rate
        self._given_up: str | None = None
        self._pause: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin another compaction; the pause that the last one still owes is added to it."""
        self._given_up = None

    def give_up(self, reason: str) -> None:
        """Make the compaction end with `GivenUp` at the next portion, or now if it is waiting here."""
        self._given_up = reason
        if self._pause is not None:
            self._pause.cancel()

    async def __call__(self, size_bytes: int) -> None:
        """Return when `size_bytes` more are within the rate."""
        self._check()
        now = self._clock.monotonic()
        self._paid_until = max(self._paid_until, now) + size_bytes / self._max_bytes_per_second()
        if self._paid_until - now >= _WORTH_A_PAUSE_SECONDS:
            await self._wait(self._paid_until - now)
            self._check()

    def _check(self) -> None:
        if self._given_up is not None:
            raise GivenUp(self._given_up)

    async def _wait(self, seconds: float) -> None:
        pause = self._pause = asyncio.get_running_loop().create_task(self._clock.sleep(seconds))
        try:
            await pause
        except asyncio.CancelledError:
            if self._given_up is None:  # not the pause was cancelled, but the task that waits here
                raise
        finally:
            self._pause = None
            pause.cancel()
