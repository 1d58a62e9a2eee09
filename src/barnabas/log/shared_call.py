"""One run of an expensive action for everybody who asked for it meanwhile: group commit, in general.

A caller is served by a run that began after it asked, so whatever it had done before is covered. While a
run is under way callers gather; then one of them runs the action for all. A run that fails fails its
caller only: the others try for themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class SharedCall:
    """Wraps an action; awaiting the wrapper runs it or joins others in waiting for the next run."""

    __slots__ = ("_action", "_done", "_finished", "_started")

    def __init__(self, action: Callable[[], Awaitable[None]]) -> None:
        self._action = action
        self._started = 0
        self._finished = 0
        self._done: asyncio.Future[None] | None = None

    async def settled(self) -> None:
        """Return when no run is under way."""
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
