"""One run of an expensive action for all callers that wait for it: group commit, in general.

A caller is served by a run that began after its call, so that whatever it had done before is covered. While a
run is in progress callers gather; then one of them runs the action for all. A failed run fails its own caller
only: the others try for themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class SharedCall:
    """Wraps an action; awaiting the wrapper runs it, or waits for the next run with others."""

    __slots__ = ("_action", "_done", "_finished", "_started")

    def __init__(self, action: Callable[[], Awaitable[None]]) -> None:
        self._action = action
        self._started = 0
        self._finished = 0
        self._done: asyncio.Future[None] | None = None

    async def settled(self) -> None:
        """Return when no run is in progress."""
        while self._done is not None:
            await asyncio.shield(self._done)

    async def __call__(self) -> None:
        need = self._started + 1
        while self._finished < need:
            if self._done is not None:
                await asyncio.shield(self._done)
                continue
            self._started += 1
            number = self._started
            done = self._done = asyncio.get_running_loop().create_future()
            try:
                await self._action()
                self._finished = number
            finally:
                self._done = None
                done.set_result(None)
