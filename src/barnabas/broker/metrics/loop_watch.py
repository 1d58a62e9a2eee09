"""Measures the event loop: how late a timer is, and how busy the loop is.

There is one loop for everything, so a task that blocks it delays all others. A timer that is due ten times a
second measures that as lateness: a stall of a tenth of a second or more is never missed, a shorter one with a
probability that grows with its length. The CPU time of the loop's thread shows how close it is to its limit.
"""

from __future__ import annotations

import asyncio

from barnabas.core.clock import Clock
from barnabas.core.histogram import WINDOW_SECONDS, Histogram
from barnabas.core.process import thread_seconds

INTERVAL_SECONDS = 0.1


class LoopWatch:
    """Measures from its creation, on the running loop, until `stop`."""

    def __init__(self, clock: Clock) -> None:
        self.stalls = Histogram()
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._marks = [(clock.monotonic(), thread_seconds())]
        self._wait()

    def _wait(self) -> None:
        self._due_at = self._clock.monotonic() + INTERVAL_SECONDS
        self._timer = self._loop.call_later(INTERVAL_SECONDS, self._look)

    def _look(self) -> None:
        now = self._clock.monotonic()
        self.stalls.observe(max(0.0, now - self._due_at))
        if now - self._marks[-1][0] >= WINDOW_SECONDS:
            self._marks = [self._marks[-1], (now, thread_seconds())]
        self._wait()

    def stop(self) -> None:
        self._timer.cancel()

    @property
    def busy_seconds(self) -> float:
        """The CPU time of the loop's thread; must be called on the loop."""
        return thread_seconds()

    @property
    def idle_ratio(self) -> float:
        """The part of the last minute or two in which the loop was idle."""
        began, busy_then = self._marks[0]
        seconds = self._clock.monotonic() - began
        if seconds <= 0:
            return 1.0
        return min(1.0, max(0.0, 1.0 - (thread_seconds() - busy_then) / seconds))
