"""The send queue of a connection: buffers and file ranges, in order and bounded.

Everything written in one turn of the loop is sent together, at the end of the turn or by `flush`: a send
wakes the peer, which costs more than most responses, and pipelined requests are answered many at a time.
Mostly the stream takes all of it at once, without a task. The rest is left to the pump, a task that lives as
long as the queue is not empty. A file range goes directly from the page cache if the stream supports that;
otherwise the pump reads it, a chunk at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Protocol

from barnabas.core.disk import FileRange
from barnabas.core.errors import BarnabasError, InvariantViolation
from barnabas.core.network import WRITE_LIMIT_BYTES, ConnectionLost, Part

CHUNK_BYTES = 256 * 1024
TURN_BYTES = 1024 * 1024
MAX_BUFFERS = 64


class Sink(Protocol):
    """The stream that the bytes go to. 0 bytes sent means that it is full; a failure is a ConnectionLost."""

    def try_send(self, buffers: list[memoryview], *, more: bool) -> int:
        """Send some bytes of the buffers; `more` says that others follow at once."""

    def try_send_file(self, part: FileRange) -> int | None:
        """Send some bytes of the range; None if they must be read first."""

    async def writable(self) -> None:
        """Return when another send may succeed."""


class _State(Enum):
    EMPTY = auto()
    FULL = auto()
    TURN_OVER = auto()
    READ_FIRST = auto()


class Outbox:
    """The queue of one connection, and the pump that empties it."""

    def __init__(self, sink: Sink, on_lost: Callable[[ConnectionLost | InvariantViolation], None]) -> None:
        self.unsent_bytes = 0
        self._sink = sink
        self._on_lost = on_lost
        self._queue: deque[memoryview | FileRange] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._is_due = False  # to be sent at the end of this turn of the loop
        self._room = asyncio.Event()
        self._lost: ConnectionLost | InvariantViolation | None = None
        self._threw_away = False
        self._at_end: Callable[[], None] | None = None

    async def write(self, parts: Sequence[Part]) -> None:
        if self._lost is not None:
            raise self._lost
        if self._at_end is not None:
            raise ConnectionLost("this side of the connection has already been ended")
        self._push(parts)
        if self._queue and self._pump is None and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.flush)
        while self.unsent_bytes > WRITE_LIMIT_BYTES and self._lost is None:
            self._room.clear()
            await self._room.wait()
        if self._lost is not None and self._threw_away:
            raise self._lost

    def flush(self) -> None:
        """Send what was written in this turn of the loop, without waiting for its end."""
        if self._is_due:
            self._is_due = False
            self._start()

    def end(self, at_end: Callable[[], None]) -> None:
        """Accept no more parts, and call `at_end` when everything is sent."""
        self._at_end = at_end
        if not self._queue and self._lost is None:
            at_end()

    def lose(self, error: ConnectionLost | InvariantViolation) -> None:
        """Drop everything; waiting and later writers get `error`."""
        if self._lost is not None:
            return
        self._lost = error
        self._threw_away = bool(self._queue)
        for part in self._queue:
            if isinstance(part, FileRange):
                part.file.unpin()
        self._queue.clear()
        self.unsent_bytes = 0
        self._room.set()
        if self._pump is not None:
            self._pump.cancel()

    def _push(self, parts: Sequence[Part]) -> None:
        added: list[memoryview | FileRange] = []
        size = 0
        try:
            for part in parts:
                if isinstance(part, FileRange):
                    if part.size:
                        part.file.pin()
                        added.append(part)
                        size += part.size
                elif part:
                    added.append(memoryview(part))
                    size += len(part)
        except BaseException:
            for pinned in added:
                if isinstance(pinned, FileRange):
                    pinned.file.unpin()
            raise
        self._queue.extend(added)
        self.unsent_bytes += size

    def _start(self) -> None:
        """Send as much as the stream takes now, and leave the rest to the pump."""
        if self._lost is not None:
            return
        try:
            state = self._send()
        except (BarnabasError, InvariantViolation) as error:
            self._fail(error)
            return
        if state is not _State.EMPTY:
            self._pump = asyncio.get_running_loop().create_task(self._run_pump(state))
        elif self._at_end is not None:
            self._at_end()

    async def _run_pump(self, state: _State) -> None:
        try:
            while state is not _State.EMPTY:
                if state is _State.FULL:
                    await self._sink.writable()
                elif state is _State.READ_FIRST:
                    await self._read_first()
                else:
                    await asyncio.sleep(0)
                state = self._send()
        except (BarnabasError, InvariantViolation) as error:
            self._fail(error)
        except asyncio.CancelledError:
            if self._lost is None:  # the loop ends, and nothing more will be sent
                self._fail(ConnectionLost("what was left to be sent was given up"))
            raise
        finally:
            self._pump = None
        if self._at_end is not None and self._lost is None:
            self._at_end()

    def _send(self) -> _State:
        """Send until the queue is empty, the stream is full, or other tasks should run."""
        budget = TURN_BYTES
        while self._queue:
            head = self._queue[0]
            if isinstance(head, FileRange):
                chunk = head if head.size <= CHUNK_BYTES else head._replace(size=CHUNK_BYTES)
                taken = self._sink.try_send_file(chunk)
                if taken is None:
                    return _State.READ_FIRST
            else:
                buffers = self._buffers_in_front()
                taken = self._sink.try_send(buffers, more=len(buffers) < len(self._queue))
            if taken == 0:
                return _State.FULL
            self._take(taken)
            budget -= taken
            if budget <= 0 and self._queue:
                return _State.TURN_OVER
        return _State.EMPTY

    def _buffers_in_front(self) -> list[memoryview]:
        buffers: list[memoryview] = []
        for part in self._queue:
            if isinstance(part, FileRange) or len(buffers) == MAX_BUFFERS:
                break
            buffers.append(part)
        return buffers

    def _take(self, count: int) -> None:
        """Remove the first `count` bytes, which have been sent."""
        self.unsent_bytes -= count
        if self.unsent_bytes <= WRITE_LIMIT_BYTES:
            self._room.set()
        while count:
            head = self._queue[0]
            size = head.size if isinstance(head, FileRange) else len(head)
            if size > count:
                self._queue[0] = _without(head, count)
                return
            self._queue.popleft()
            if isinstance(head, FileRange):
                head.file.unpin()
            count -= size

    async def _read_first(self) -> None:
        """Read the beginning of the first range into memory."""
        head = self._queue[0]
        assert isinstance(head, FileRange)
        size = min(head.size, CHUNK_BYTES)
        data = await head.file.read(head.position, size)
        if len(data) < size:
            raise ConnectionLost(
                f"{head.file.path} ends before byte {head.position + size}, which was promised"
            )
        if size == head.size:
            self._queue.popleft()
            head.file.unpin()
        else:
            self._queue[0] = _without(head, size)
        self._queue.appendleft(memoryview(data))

    def _fail(self, error: BarnabasError | InvariantViolation) -> None:
        """The connection failed within a response: for whatever reason, the peer cannot parse the rest."""
        if not isinstance(error, (ConnectionLost, InvariantViolation)):
            lost = ConnectionLost(f"connection given up in the middle of a response: {error}")
            lost.__cause__ = error
            error = lost
        self._on_lost(error)


def _without(part: memoryview | FileRange, count: int) -> memoryview | FileRange:
    if isinstance(part, FileRange):
        return FileRange(part.file, part.position + count, part.size - count)
    return part[count:]
