"""A connection over a stream: the logic that is the same for a socket and for a pipe in memory.

A stream only has attempts that do not block, and waits. A connection adds the order of events: reads that
wait, the outbox, ending one side, closing, and the loss of the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from barnabas.core.errors import InvariantViolation
from barnabas.core.network import Address, ConnectionLost, Part
from barnabas.core.outbox import Outbox, Sink


class Stream(Sink, Protocol):
    """The transport of a connection. Once it is lost, every method but `close` raises ConnectionLost."""

    @property
    def peer(self) -> Address:
        """The address of the other end."""

    def try_read(self, max_bytes: int) -> bytes | None:
        """The bytes that have arrived; b"" at the end of the stream, None if nothing has arrived yet."""

    def try_readinto(self, buffer: bytearray | memoryview) -> int | None:
        """As `try_read`, into a buffer."""

    async def readable(self) -> None:
        """Return when another read may succeed."""

    def end(self) -> None:
        """Tell the peer that this side sends nothing more."""

    def close(self, *, reset: bool) -> None:
        """Release the stream and end every wait on it; with `reset` the peer sees a lost connection."""


class StreamConnection:
    """A connection over an established stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._outbox = Outbox(stream, self._lose)
        self._lost: ConnectionLost | InvariantViolation | None = None
        self._closed = asyncio.Event()

    @property
    def peer(self) -> Address:
        return self._stream.peer

    @property
    def unsent_bytes(self) -> int:
        return self._outbox.unsent_bytes

    async def read(self, max_bytes: int) -> bytes:
        while True:
            self._check()
            try:
                data = self._stream.try_read(max_bytes)
                if data is not None:
                    return data
                await self._stream.readable()
            except ConnectionLost as error:
                self._lose(error)

    async def readinto(self, buffer: bytearray | memoryview) -> int:
        while True:
            self._check()
            try:
                count = self._stream.try_readinto(buffer)
                if count is not None:
                    return count
                await self._stream.readable()
            except ConnectionLost as error:
                self._lose(error)

    async def write(self, parts: Sequence[Part]) -> None:
        await self._outbox.write(parts)

    def flush(self) -> None:
        self._outbox.flush()

    def write_eof(self) -> None:
        if self._lost is None:
            self._outbox.end(self._end_stream)

    def close(self) -> None:
        if self._lost is None:
            self._lost = ConnectionLost(f"the connection with {self.peer} was closed on this side")
            self._outbox.end(self._close_stream)

    def abort(self) -> None:
        self._finish(ConnectionLost(f"the connection with {self.peer} was aborted on this side"), reset=True)

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _end_stream(self) -> None:
        try:
            self._stream.end()
        except ConnectionLost as error:
            self._lose(error)

    def _close_stream(self) -> None:
        assert self._lost is not None
        self._finish(self._lost, reset=False)

    def _lose(self, error: ConnectionLost | InvariantViolation) -> None:
        self._finish(error, reset=True)

    def _finish(self, error: ConnectionLost | InvariantViolation, *, reset: bool) -> None:
        if not self._closed.is_set():
            self._lost = self._lost or error
            self._closed.set()
            self._outbox.lose(self._lost)
            self._stream.close(reset=reset)
