"""The lock for changes of a log: for tasks of one event loop, first come, first served.

Every append takes it, so taking it uncontended must cost next to nothing: the holder just sets `is_taken`.
Other tasks wait, and `leave` hands the lock over to the next of them, still taken.
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
        """Return when the caller holds the lock."""
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
        """Hand the lock to the next waiter, if there is one."""
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
