"""What a process has begun and the machine has not finished yet: calls of the disk and of workers.

A call takes virtual time and takes effect at its end. As the seams promise, it is carried through even where
its waiter is cancelled. Killed, the process gets no answer any more: whoever keeps the machine decides what
became of the calls that were under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class NodeCrash(BaseException):
    """Raised in the middle of a call that takes effect: the node is down from here on."""


class Call:
    """`finish` makes it happen; `tear` makes some part of it happen, where there are parts."""

    __slots__ = ("error", "finish", "is_done", "result", "tear", "waiter")

    def __init__(self, finish: Callable[[], Any], tear: Callable[[float], object] | None) -> None:
        self.finish = finish
        self.tear = tear
        self.is_done = False
        self.result: Any = None
        self.error: Exception | None = None
        self.waiter: asyncio.Future[None] | None = None


class UnderWay:
    """The calls of one process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: dict[Call, None] = {}
        self._is_cut = False

    async def call(
        self, seconds: float, finish: Callable[[], T], tear: Callable[[float], object] | None = None
    ) -> T:
        """The result of `finish`, that much later."""
        self.check()
        call = Call(finish, tear)
        self._calls[call] = None
        self._loop.call_later(seconds, self._end, call)
        cancelled: asyncio.CancelledError | None = None
        while not call.is_done:
            call.waiter = self._loop.create_future()
            try:
                await call.waiter
            except asyncio.CancelledError as error:
                if self._is_cut:
                    raise
                cancelled = error
        if cancelled is not None:
            raise cancelled
        if call.error is not None:
            raise call.error
        result: T = call.result
        return result

    def check(self) -> None:
        """What runs on in a killed process gets no further than to here."""
        if self._is_cut:
            raise asyncio.CancelledError("the process has been killed")

    def cut(self) -> list[Call]:
        """The process is dead: nobody gets an answer any more. Gives what was under way, oldest first."""
        self._is_cut = True
        calls, self._calls = list(self._calls), {}
        return calls

    def _end(self, call: Call) -> None:
        if self._calls.pop(call, self) is self:
            return
        try:
            call.result = call.finish()
        except NodeCrash:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
            call.error = error
        call.is_done = True
        if call.waiter is not None and not call.waiter.done():
            call.waiter.set_result(None)
