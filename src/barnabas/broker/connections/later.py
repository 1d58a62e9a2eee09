"""Responses that are completed later, although their requests have had all their effects.

The `begin` of a handler returns one in place of a response. Meanwhile the connection serves the client's next
requests of the same kind. It sends the responses in the order of the requests.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.core.network import Part
    from barnabas.protocol.schema import Message


class LaterResponse(ABC):
    """A response that is not complete yet. Either `finish` or `give_up` is called in the end."""

    __slots__ = ("_call", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._call: Callable[[], None] | None = None

    def when_done(self, call: Callable[[], None]) -> None:
        """Call `call` once, when the response is complete, which may be at once."""
        if self.is_done:
            call()
        else:
            self._call = call

    @abstractmethod
    def finish(self) -> Message | None:
        """The complete response."""

    @abstractmethod
    def give_up(self) -> None:
        """Stop waiting: the response is not sent."""

    async def wait(self) -> None:
        """Return when the response is complete. If the caller is cancelled, the response is given up."""
        if not self.is_done:
            done = asyncio.get_running_loop().create_future()
            self.when_done(lambda: None if done.done() else done.set_result(None))
            try:
                await done
            except asyncio.CancelledError:
                self.give_up()
                raise

    def _is_complete(self) -> None:
        self.is_done = True
        call, self._call = self._call, None
        if call is not None:
            call()


class LaterAnswer:
    """A response that is encoded when it is complete."""

    __slots__ = ("_encode", "response")

    def __init__(
        self, response: LaterResponse, encode: Callable[[Message | None], list[Part] | None]
    ) -> None:
        self.response = response
        self._encode = encode

    def parts(self) -> list[Part] | None:
        """The parts to write, once the response is complete."""
        return self._encode(self.response.finish())
