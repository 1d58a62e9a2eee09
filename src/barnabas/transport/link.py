"""The connection to one address, with attempts to connect and back-off.

At most one attempt is in progress. After a failure, or a loss, the next one is delayed, longer after each
consecutive failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError
from barnabas.core.network import Address, ConnectionLost
from barnabas.transport.connection import BrokerConnection
from barnabas.transport.waiting import Backoff

logger = logging.getLogger("barnabas.transport")

Open = Callable[[Address], Awaitable[BrokerConnection]]


class Link:
    """One address; `on_change(is_lost)` is called when a connection is made, refused or lost."""

    def __init__(
        self, address: Address, clock: Clock, backoff: Backoff, open_: Open, on_change: Callable[[bool], None]
    ) -> None:
        self.made: BrokerConnection | None = None
        self._address, self._clock, self._backoff = address, clock, backoff
        self._open_connection = open_
        self._on_change = on_change
        self._attempt: asyncio.Task[BrokerConnection] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._is_closed = False

    def ready(self) -> BrokerConnection | None:
        """The connection; if there is none, an attempt is started."""
        if self.made is None and self._attempt is None:
            self._begin()
        return self.made

    async def wait(self) -> BrokerConnection:
        """Wait for the connection."""
        if self.made is not None:
            return self.made
        attempt = self._attempt or self._begin()
        await asyncio.wait((attempt,))
        if attempt.cancelled():
            raise ConnectionLost(f"the attempt to connect to {self._address} was given up")
        return attempt.result()

    def close(self) -> None:
        """Close the connection or cancel the attempt, without calling `on_change`."""
        self._is_closed = True
        if self._attempt is not None:
            self._attempt.cancel()
        if self.made is not None:
            self.made.on_lost = None
            self.made.close()
            self.made = None

    def _begin(self) -> asyncio.Task[BrokerConnection]:
        attempt = self._attempt = asyncio.get_running_loop().create_task(self._open())
        attempt.add_done_callback(self._done)
        return attempt

    async def _open(self) -> BrokerConnection:
        wait_s = self._not_before - self._clock.monotonic()
        if wait_s > 0:
            await self._clock.sleep(wait_s)
        return await self._open_connection(self._address)

    def _done(self, attempt: asyncio.Task[BrokerConnection]) -> None:
        self._attempt = None
        if attempt.cancelled():
            return
        error = attempt.exception()
        if error is not None:
            if not isinstance(error, BarnabasError):
                logger.error("connecting to %s failed", self._address, exc_info=error)
            self._failed()
            return
        if self._is_closed:  # between the attempt's end and this
            attempt.result().close()
            return
        made = self.made = attempt.result()
        if made.lost is not None:
            self._lost()
            return
        self._failures = 0
        made.on_lost = self._lost
        self._on_change(False)

    def _lost(self) -> None:
        self.made = None
        self._failed()

    def _failed(self) -> None:
        self._failures += 1
        self._not_before = self._clock.monotonic() + self._backoff.seconds(self._failures)
        self._on_change(True)
