"""Waiting on an injected clock: for an event, for a call with a time limit, and for back-off."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from barnabas.core.alarm import Alarm
from barnabas.core.clock import Clock
from barnabas.core.random import Random
from barnabas.transport.errors import TimedOut

T = TypeVar("T")

JITTER = 0.2


class Wake:
    """A loop waits here between iterations, until it is called or until a given time."""

    def __init__(self, clock: Clock) -> None:
        self._event = asyncio.Event()
        self._alarm = Alarm(clock, self._event.set)

    def call(self) -> None:
        """End the wait, or the next one if nobody waits now."""
        self._event.set()

    async def wait(self, until: float | None = None) -> None:
        """Return when called, or at `until` at the latest."""
        self._alarm.clear()
        if until is not None and not self._event.is_set():
            self._alarm.set(until)
        try:
            await self._event.wait()
        finally:
            self._alarm.clear()
        self._event.clear()


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T], what: str) -> T:
    """The result of `work`; TimedOut if it takes longer than `seconds`."""
    loop = asyncio.get_running_loop()
    task, timer = loop.create_task(work), loop.create_task(clock.sleep(max(0.0, seconds)))
    try:
        await asyncio.wait((task, timer), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        # rounded to hundredths, so that messages about the same problem are equal
        raise TimedOut(f"{what} took longer than {round(seconds, 2):g} s")
    finally:
        task.cancel()
        timer.cancel()


class Backoff:
    """The delay after consecutive failures: it doubles each time, up to a limit, with jitter."""

    def __init__(self, first_ms: int, max_ms: int, random: Random) -> None:
        self._first_ms, self._max_ms = first_ms, max_ms
        self._random = random

    def seconds(self, failures: int) -> float:
        base_ms = min(self._max_ms, self._first_ms << min(max(failures - 1, 0), 20))
        return base_ms * (1 - JITTER + 2 * JITTER * self._random.uniform()) / 1000
