"""Producer ids, each used once in the life of a cluster.

The controller allocates blocks of a thousand. A node takes ids from its block and asks for another when it is
used up. The rest of a node's block is lost when it stops: there are enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    """The ids of one node; `allocate` asks the controller for a block, which is not empty."""

    __slots__ = ("_allocate", "_end", "_next", "_turn")

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._next = self._end = 0
        self._turn = asyncio.Lock()

    async def next(self) -> int:
        """An unused id. Callers that need a new block wait for the same request."""
        if self._next == self._end:
            async with self._turn:
                if self._next == self._end:
                    block = await self._allocate()
                    self._next, self._end = block.start, block.stop
                return self._take()
        return self._take()

    def _take(self) -> int:
        taken = self._next
        self._next += 1
        return taken
