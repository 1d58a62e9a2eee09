"""Whose turn it is to change a log: a lock for tasks of one event loop, first come, first served.

Where nobody else wants it, taking a turn must cost next to nothing, for every append takes one: the holder
just sets `is_taken`. Whoever finds it taken waits, and is handed the turn, still taken, by `leave`.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Turn:
    """`async with turn:`, or on the hot path: `if turn.is_taken: await turn.wait()`, set, try, `leave`."""

    __slots__ = ("_waiting", "is_taken")

    def __init__(self) -> None:
        self.is_taken = False
        self._waiting: deque[asyncio.Future[None]] | None = None

    async def wait(self) -> None:
        """Return when the turn has been handed over to the caller."""
        waiter = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        """Hand the turn to the next in line, if there is one."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._waiting = None
        self.is_taken = False

    async def __aenter__(self) -> None:
        if self.is_taken:
            await self.wait()
        self.is_taken = True

    async def __aexit__(self, *_: object) -> None:
        self.leave()
