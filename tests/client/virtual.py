"""Virtual time: an event loop that never waits, and the clock that goes with it.

Where a real loop would sleep until its next timer, this one moves its clock there. With a network in memory
nothing else can happen meanwhile, so a test of minutes takes milliseconds and always goes the same way.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

TURN_S = 1e-7  # a turn of the loop takes some time, too: whoever waits for the clock sees it move
START_MS = 1_700_000_000_000


class _NeverWaits(selectors.DefaultSelector):
    """Moves time on instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing will ever happen again: every task waits, and no timer is set")
        self.now += max(timeout, TURN_S)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own."""

    def __init__(self) -> None:
        self._never_waits = _NeverWaits()
        super().__init__(self._never_waits)

    def time(self) -> float:
        return self._never_waits.now


class LoopClock:
    """The clock of the running loop."""

    def wall_ms(self) -> int:
        return START_MS + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
