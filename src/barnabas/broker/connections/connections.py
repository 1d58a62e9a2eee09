"""Connections from clients: accepted within limits, read while memory is left, answered in order.

Each connection has one task. It reads frames, has each answered, and writes the response before it handles
the next, so that responses leave in the order of their requests, and a client that does not read its
responses is not read from either. So the memory of a connection is bounded: one scratch buffer of small
requests or one large request, and the responses of one of them. Most requests are answered without waiting
for anything; so a connection whose requests never run out yields to the others after TURN_BYTES.

Produce requests whose records are in the log, and only have to be replicated, do not delay further produce
requests: up to MAX_WAITING of them wait at a time, and their responses are sent in the same order. So one
fetch of a follower takes the records of several requests. Requests of any other kind wait until they are
answered.

An error in the bytes that a client sends ends its connection with one line in the log, and affects nothing
else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.connections.later import LaterAnswer
from barnabas.broker.connections.pace import UNLIMITED, Pace
from barnabas.broker.connections.requests import (
    ClientConnection,
    NotServed,
    RequestRouter,
    answer,
    is_pipelined,
)
from barnabas.broker.traffic import ListenerTraffic
from barnabas.core.eager import begin
from barnabas.core.errors import BarnabasError, InvariantViolation
from barnabas.core.network import WRITE_LIMIT_BYTES, Address, Connection, ConnectionLost, Part
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.relations import connections_per_ip
from barnabas.protocol.frames import SCRATCH_BYTES, BadFrame, FrameReader
from barnabas.protocol.wire import MalformedMessage

if TYPE_CHECKING:
    from barnabas.broker.services import ControllerServices

logger = logging.getLogger("barnabas.connections")

TURN_BYTES = 1024 * 1024
REQUEST_BYTES = 16 * 1024  # the cost of a request beside its bytes, in bytes
MAX_WAITING = 32  # responses of one connection that are not complete yet


class Limits(NamedTuple):
    """Limits of clients, named as Kafka's settings."""

    max_request_bytes: int = 100 * 1024 * 1024  # socket.request.max.bytes
    max_idle_ms: int = 600_000  # connections.max.idle.ms
    max_connections: int = 2**31 - 1  # max.connections
    max_connections_per_ip: int = 2**31 - 1  # max.connections.per.ip
    per_ip_overrides: tuple[tuple[str, int], ...] = ()  # max.connections.per.ip.overrides
    queued_max_bytes: int = -1  # queued.max.request.bytes
    created_per_second: int = UNLIMITED  # max.connection.creation.rate


def limits_of(settings: BrokerSettings) -> Limits:
    """The limits in a broker's settings."""
    return Limits(
        settings.integer("socket.request.max.bytes"),
        settings.integer("connections.max.idle.ms"),
        settings.integer("max.connections"),
        settings.integer("max.connections.per.ip"),
        tuple(connections_per_ip(settings).items()),
        settings.integer("queued.max.request.bytes"),
        settings.integer("max.connection.creation.rate"),
    )


class Session(ClientConnection):
    """The state of one connection."""

    __slots__ = (
        "_answered",
        "connection",
        "is_answering",
        "is_let_go",
        "last_active",
        "listener",
        "task",
        "unsent_bytes",
        "waiting",
    )

    def __init__(self, connection: Connection, listener: str, now: float) -> None:
        super().__init__()
        self.connection = connection
        self.listener = listener
        self.is_answering = False  # false while it waits for the client
        self.waiting: deque[LaterAnswer | list[Part]] = deque()  # responses, in order
        self._answered: asyncio.Future[None] | None = None
        self.is_let_go = False  # closed as idle; its task may take a while to end
        self.last_active = now
        self.unsent_bytes = 0  # as of the last check for idle connections
        self.task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request of this client is not answered yet."""
        return self.is_answering or bool(self.waiting)

    def send_complete(self) -> None:
        """Send the complete responses, up to the first incomplete one."""
        waiting = self.waiting
        while waiting:
            first = waiting[0]
            if isinstance(first, LaterAnswer):
                if not first.response.is_done:
                    return
                parts = first.parts()
            else:
                parts = first
            waiting.popleft()
            if parts is not None:
                begin(_send(self.connection, parts))
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    async def answered(self) -> None:
        """Return when no response waits any more, and the client has read most of them."""
        while self.waiting:
            self._answered = asyncio.get_running_loop().create_future()
            await self._answered
        await self.connection.write(())

    def give_up_waiting(self) -> None:
        """The connection has ended: no response is sent any more."""
        for each in self.waiting:
            if isinstance(each, LaterAnswer):
                each.response.give_up()
        self.waiting.clear()


async def _send(connection: Connection, parts: list[Part]) -> None:
    with contextlib.suppress(ConnectionLost):  # the connection's reader notices by itself
        await connection.write(parts)


class MemoryBudget:
    """The memory that requests may use together (queued.max.request.bytes). A request waits while none is
    left."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used = 0
        self.freed = asyncio.Event()

    def share(self) -> MemoryShare | None:
        """The memory accounting of one connection; None without a limit."""
        return MemoryShare(self) if self.max_bytes > 0 else None


class MemoryShare:
    """The memory that one connection uses of the budget, for one request at a time."""

    def __init__(self, room: MemoryBudget) -> None:
        self._room = room
        self._held = 0

    async def take(self, size: int) -> None:
        if self._held:
            return
        # As in Kafka, a request is admitted as soon as any memory is left: it may itself exceed the limit.
        while self._room.used >= self._room.max_bytes:
            self._room.freed.clear()
            await self._room.freed.wait()
        self._held = size
        self._room.used += size

    def give_back(self) -> None:
        self._room.used -= self._held
        self._held = 0
        self._room.freed.set()


class Connections:
    """All connections of a broker, or of a controller; `router` has the APIs that it serves."""

    def __init__(self, services: ControllerServices, router: RequestRouter, limits: Limits) -> None:
        self._services = services
        self._router = router
        self._clock = services.clock
        self._pace = Pace(limits.created_per_second, self._clock.monotonic())
        self.limit(limits)
        self._sessions: dict[Session, None] = {}  # a set whose order does not depend on addresses
        self._per_host: dict[str, int] = {}
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._room = MemoryBudget(limits.queued_max_bytes)
        self._is_closing = False
        self.traffic: dict[str, ListenerTraffic] = {}  # by the listener's name

    def __len__(self) -> int:
        return len(self._sessions)

    def limit(self, limits: Limits) -> None:
        """Apply other limits from now on; open connections stay."""
        self._limits = limits
        self._overrides = dict(limits.per_ip_overrides)
        if limits.created_per_second != self._pace.per_second:
            self._pace = Pace(limits.created_per_second, self._clock.monotonic())

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    @property
    def queued_bytes(self) -> int:
        """The memory that requests use, where that is limited."""
        return self._room.used

    def accept(self, connection: Connection, listener: str) -> None:
        """Accept a connection, or close it where the limits are reached."""
        host = connection.peer.host
        traffic = self.traffic.setdefault(listener, ListenerTraffic())
        if not self._has_room_for(connection.peer):
            traffic.turned_away += 1
            connection.abort()
            return
        traffic.created += 1
        session = Session(connection, listener, self._clock.monotonic())
        self._sessions[session] = None
        self._per_host[host] = self._per_host.get(host, 0) + 1
        wait_seconds = self._pace.wait_seconds(session.last_active)
        session.task = asyncio.get_running_loop().create_task(self._serve(session, wait_seconds))
        session.task.add_done_callback(_look_at)

    def _has_room_for(self, peer: Address) -> bool:
        if len(self._sessions) >= self._limits.max_connections:
            logger.warning("turned %s away: max.connections=%d are there", peer, self._limits.max_connections)
            return False
        allowed = self._overrides.get(peer.host, self._limits.max_connections_per_ip)
        if self._per_host.get(peer.host, 0) >= allowed:
            logger.warning(
                "turned %s away: it has its %d connections (max.connections.per.ip)", peer, allowed
            )
            return False
        return True

    async def _serve(self, session: Session, wait_seconds: float) -> None:
        connection = session.connection
        try:
            if wait_seconds:
                await self._clock.sleep(wait_seconds)
                session.last_active = self._clock.monotonic()
            await self._serve_to_the_end(session)
            session.has_closed()  # no more requests will come, even if responses are still to be sent
            if not self._is_closing:
                # while the client does not read its last responses, the connection counts, and can become
                # idle
                session.is_answering = False
                connection.close()
                await connection.wait_closed()
        finally:
            connection.close()
            self._forget(session)

    async def _serve_to_the_end(self, session: Session) -> None:
        connection = session.connection
        try:
            await self._answer_all(session)
        except ConnectionLost:
            pass
        except (BadFrame, MalformedMessage, NotServed) as error:
            logger.warning("closed the connection with %s: %s", connection.peer, error)
        except InvariantViolation as error:
            self._services.stop(error)
        except BarnabasError as error:
            logger.error("closed the connection with %s: its request failed: %s", connection.peer, error)

    async def _answer_all(self, session: Session) -> None:
        connection, services, clock = session.connection, self._services, self._clock
        reader = FrameReader(self._scratch, self._limits.max_request_bytes)
        router, listener, host = self._router, session.listener, connection.peer.host
        room = self._room.share()
        turn_bytes = TURN_BYTES
        try:
            while True:
                if turn_bytes <= 0:  # in the middle of a large request
                    turn_bytes = TURN_BYTES
                    await asyncio.sleep(0)
                if room is not None and not reader.is_between_frames:
                    await room.take(reader.awaited_bytes)
                count = await connection.readinto(reader.buffer())
                session.last_active = clock.monotonic()
                if count == 0:
                    if not reader.is_between_frames:
                        logger.info("%s left in the middle of a request", connection.peer)
                    await session.answered()
                    return
                session.is_answering = True
                turn_bytes -= count
                for frame in reader.received(count):
                    if room is not None:
                        await room.take(len(frame))
                    if not self._may_begin(session, frame):
                        await session.answered()
                    try:
                        response = await answer(frame, router, listener, host, services, session)
                    except BarnabasError:
                        if session.waiting:
                            await session.answered()  # the connection is closed after these responses
                        raise
                    if isinstance(response, LaterAnswer) or (session.waiting and response is not None):
                        self._wait(session, response)
                        if room is not None:
                            await session.answered()
                    elif response is not None:
                        await connection.write(response)
                    if room is not None:
                        room.give_back()
                    if self._is_closing:
                        await session.answered()
                        return
                    turn_bytes -= REQUEST_BYTES
                    if turn_bytes <= 0:
                        turn_bytes = TURN_BYTES
                        await asyncio.sleep(0)
                connection.flush()
                session.is_answering = False
                session.last_active = clock.monotonic()
        finally:
            session.give_up_waiting()
            if room is not None:
                room.give_back()

    def _may_begin(self, session: Session, frame: memoryview) -> bool:
        """Whether the next request may begin although earlier ones are not answered, or their responses not
        read."""
        waiting = session.waiting
        if session.connection.unsent_bytes > WRITE_LIMIT_BYTES:
            return False
        return not waiting or (len(waiting) < MAX_WAITING and is_pipelined(frame, self._router))

    def _wait(self, session: Session, response: LaterAnswer | list[Part]) -> None:
        """Send a response when it is complete, and all before it are sent."""
        session.waiting.append(response)
        if isinstance(response, LaterAnswer):
            response.response.when_done(lambda: self._is_complete(session))

    def _is_complete(self, session: Session) -> None:
        try:
            session.send_complete()
        except InvariantViolation as error:
            self._services.stop(error)
        except Exception as error:
            logger.error("a connection was closed by an unexpected error", exc_info=error)
            session.connection.abort()
            assert session.task is not None
            session.task.cancel()  # it may wait for the responses
        if not session.waiting:
            session.last_active = self._clock.monotonic()
            if self._is_closing and not session.is_answering and session.task is not None:
                session.task.cancel()

    def _forget(self, session: Session) -> None:
        if session in self._sessions:
            del self._sessions[session]
            self.traffic[session.listener].closed += 1
            session.has_closed()
        host = session.connection.peer.host
        left = self._per_host.get(host, 1) - 1
        if left:
            self._per_host[host] = left
        else:
            self._per_host.pop(host, None)

    async def close_idle(self) -> None:
        """Run until cancelled: close connections on which nothing was received or sent for too long.

        As in Kafka, this also ends a long poll that waits for longer: it is not known whether its client is
        still there.
        """
        idle_seconds = self._limits.max_idle_ms / 1000
        while idle_seconds >= 0:
            await self._clock.sleep(max(0.05, idle_seconds / 10))
            now = self._clock.monotonic()
            for session in list(self._sessions):
                unsent_bytes = session.connection.unsent_bytes
                if unsent_bytes != session.unsent_bytes:
                    session.unsent_bytes, session.last_active = unsent_bytes, now
                elif session.last_active < now - idle_seconds and not session.is_let_go:
                    session.is_let_go = True
                    logger.info("closed the connection with %s: idle for too long", session.connection.peer)
                    self.traffic[session.listener].expired += 1
                    session.connection.abort()
                    assert session.task is not None
                    session.task.cancel()

    async def finish(self, seconds: float) -> None:
        """Take no more requests. Requests that are being answered get that long, then their connections are
        closed."""
        self._is_closing = True
        busy = []
        for session in self._sessions:
            assert session.task is not None
            if session.is_busy:
                busy.append(session.task)
            else:
                session.task.cancel()
        if busy:
            await asyncio.wait(busy, timeout=seconds)
        await self.close()

    async def close(self) -> None:
        """End every connection. Requests that are being answered are cancelled, complete responses are still
        sent."""
        self._is_closing = True
        tasks = [session.task for session in self._sessions if session.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for session in list(self._sessions):  # a task that is cancelled before its first step never runs
            session.connection.close()
            self._forget(session)


def _look_at(task: asyncio.Task[None]) -> None:
    """Any other exception is a bug: it is logged, and the other connections go on."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("a connection was closed by an unexpected error", exc_info=error)
