"""One connection to one broker: requests are sent in order of submission, responses return in the same order.

`submit` is synchronous: the order of the calls is the order on the wire. A writer task sends the collected
requests; a reader task resolves the responses. A request that times out ends the whole connection, since a
late response could be taken for that of the next request. All open requests then fail with ConnectionLost;
whether the broker has carried them out is unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from barnabas.core.alarm import Alarm
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError
from barnabas.core.network import Address, Connection, ConnectionLost, Network, Part
from barnabas.protocol.channel import OutOfStep, Pending, RequestChannel, Versions, retry_version
from barnabas.protocol.frames import BadFrame, FrameReader
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.schema import EVERY_VERSION, Message
from barnabas.protocol.wire import MalformedMessage
from barnabas.transport.errors import BrokerError, TimedOut, wire_error_of
from barnabas.transport.waiting import within

logger = logging.getLogger("barnabas.transport")

SOFTWARE_NAME = "barnabas"
MAX_RESPONSE_BYTES = 0x7FFFFFFF
# for the first response, to ApiVersions: a peer that announces a larger one is not a Kafka broker
MAX_VERSIONS_BYTES = 1024 * 1024

M = TypeVar("M", bound=Message)


class _Open(NamedTuple):
    """A request whose response is awaited."""

    pending: Pending
    answer: asyncio.Future[Message]
    deadline: float


class BrokerConnection:
    """An established connection; `open_connection` makes one that knows the broker's versions."""

    def __init__(
        self, connection: Connection, clock: Clock, *, client_id: str, timeout_s: float, scratch: memoryview
    ) -> None:
        self.versions = Versions({ApiVersionsRequest.__key__: ApiVersionsRequest.__versions__})
        self.features: dict[str, int] = {}  # the finalised levels in the last ApiVersions response
        self.lost: BarnabasError | None = None  # TimedOut if this side gave it up
        self.on_lost: Callable[[], None] | None = None
        self._connection = connection
        self._clock = clock
        self._timeout_s = timeout_s
        self._channel = RequestChannel(client_id)
        self._reader = FrameReader(scratch, MAX_VERSIONS_BYTES)
        self._open: dict[int, _Open] = {}
        self._unwritten: list[Part] = []
        self._told: list[asyncio.Future[None]] = []  # resolved when the collected parts are written
        self._telling: list[asyncio.Future[None]] = []  # resolved when the parts being written are
        self._to_write = asyncio.Event()
        self._alarm = Alarm(clock, self._check_deadlines)
        loop = asyncio.get_running_loop()
        self._tasks = (loop.create_task(self._read()), loop.create_task(self._write()))

    @property
    def peer(self) -> Address:
        return self._connection.peer

    @property
    def open_requests(self) -> int:
        """The number of responses that are awaited."""
        return len(self._open)

    @property
    def is_receiving(self) -> bool:
        """Whether part of a response has been received."""
        return not self._reader.is_between_frames

    def submit(
        self,
        request: Message,
        response: type[M],
        *,
        at_most: int = EVERY_VERSION,
        timeout_s: float | None = None,
    ) -> asyncio.Future[M]:
        """Send a request in the newest common version up to `at_most`; the result is its response."""
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        pending = self._put(request, response, at_most)
        assert pending is not None
        deadline = self._clock.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        self._open[pending.correlation_id] = _Open(pending, answer, deadline)
        self._alarm.set(deadline)
        return answer  # type: ignore[return-value]

    def tell(self, request: Message, *, at_most: int = EVERY_VERSION) -> asyncio.Future[None]:
        """Send a request without a response (acks=0); the result is set when the network has taken it."""
        self._put(request, None, at_most)
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._told.append(told)
        return told

    async def ask(
        self,
        request: Message,
        response: type[M],
        *,
        at_most: int = EVERY_VERSION,
        timeout_s: float | None = None,
    ) -> M:
        """Send a request and wait for its response."""
        return await self.submit(request, response, at_most=at_most, timeout_s=timeout_s)

    def _put(self, request: Message, response: type[Message] | None, at_most: int) -> Pending | None:
        if self.lost is not None:
            raise ConnectionLost(str(self.lost))
        version = self.versions.choose(type(request), at_most)
        parts, pending = self._channel.send(request, version, response)
        self._unwritten += parts
        self._to_write.set()
        return pending

    async def learn_versions(self, software_version: str) -> None:
        """Ask the broker for its versions, and for the finalised features of its cluster.

        Older brokers are asked again in a version that they support.
        """
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=software_version
        )
        version: int | None = ApiVersionsRequest.__versions__[1]
        while version is not None:
            asked = version
            response = await self.ask(request, ApiVersionsResponse, at_most=asked)
            version = retry_version(response, asked)
        if response.error_code:
            error = wire_error_of(response.error_code)
            raise BrokerError(error, f"{self.peer} does not tell its versions: {error.name}")
        self._reader.max_frame_bytes = MAX_RESPONSE_BYTES
        self.versions = Versions.of(response)
        self.features = {each.name: each.max_version_level for each in response.finalized_features}

    def close(self) -> None:
        """Send the submitted requests and close; open requests fail. Harmless when repeated."""
        if self.lost is None:
            if self._unwritten:
                # `write` alone would be a coroutine; the collected parts are too few to wait for
                asyncio.get_running_loop().create_task(self._last_write(self._unwritten))
            else:
                self._connection.close()
            self._lose(ConnectionLost(f"the connection with {self.peer} was closed on this side"))

    async def _last_write(self, parts: list[Part]) -> None:
        try:
            await self._connection.write(parts)
        except ConnectionLost:
            return
        self._connection.close()

    async def _write(self) -> None:
        try:
            while True:
                await self._to_write.wait()
                self._to_write.clear()
                parts, self._unwritten = self._unwritten, []
                self._telling, self._told = self._told, []
                await self._connection.write(parts)
                for told in self._telling:
                    if not told.done():
                        told.set_result(None)
        except ConnectionLost as error:
            self._fail(error)

    async def _read(self) -> None:
        reader, connection = self._reader, self._connection
        try:
            while (count := await connection.readinto(reader.buffer())) > 0:
                for pending, message in self._channel.received(reader.received(count)):
                    one = self._open.pop(pending.correlation_id)
                    if not one.answer.done():
                        one.answer.set_result(message)
            raise ConnectionLost(f"{self.peer} closed the connection")
        except ConnectionLost as error:
            self._fail(error)
        except (OutOfStep, BadFrame, MalformedMessage) as error:
            logger.error("%s does not speak as it should, and is left: %s", self.peer, error)
            self._fail(error)

    def _check_deadlines(self) -> None:
        if not self._open:
            return
        now = self._clock.monotonic()
        late = [one for one in self._open.values() if one.deadline <= now]
        if not late:
            self._alarm.set(min(one.deadline for one in self._open.values()))
            return
        for one in late:
            if not one.answer.done():
                name = one.pending.response.__name__.removesuffix("Response")
                one.answer.set_exception(
                    TimedOut(f"{self.peer} did not answer {name} in time; it is overloaded or cut off")
                )
        self._fail(TimedOut(f"{self.peer} did not answer a request in time"))

    def _fail(self, error: BarnabasError) -> None:
        if self.lost is None:
            self._connection.abort()
            self._lose(error)

    def _lose(self, error: BarnabasError) -> None:
        self.lost = error
        self._alarm.clear()
        for task in self._tasks:
            task.cancel()
        still_open, self._open = self._open, {}
        waiting: list[asyncio.Future[Any]] = [one.answer for one in still_open.values()]
        for each in (*waiting, *self._telling, *self._told):
            if not each.done():
                each.set_exception(ConnectionLost(str(error)))
        if self.on_lost is not None:
            self.on_lost()


async def open_connection(
    network: Network,
    clock: Clock,
    address: Address,
    *,
    client_id: str,
    software_version: str,
    connect_timeout_s: float,
    request_timeout_s: float,
    scratch: memoryview,
) -> BrokerConnection:
    """A connection to a broker, with the broker's versions."""
    made: list[Connection] = []  # to close a connection that is made when nobody waits for it any more

    async def connect() -> None:
        made.append(await network.connect(address.host, address.port))

    try:
        await within(clock, connect_timeout_s, connect(), f"connecting to {address}")
    except BaseException:
        for unwanted in made:
            unwanted.close()
        raise
    (connection,) = made
    broker = BrokerConnection(
        connection, clock, client_id=client_id, timeout_s=request_timeout_s, scratch=scratch
    )
    try:
        await broker.learn_versions(software_version)
    except BaseException:
        broker.close()
        raise
    return broker
