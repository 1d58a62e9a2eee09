"""A node that a broker takes for the active controller: it notes what it is asked, and answers as it is told.

It listens in a network in memory. An Envelope is opened: `asked` has the request in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple

from barnabas.broker.handlers import SERVED_BY_CONTROLLER, Served
from barnabas.core.memory_network import MemoryNetwork
from barnabas.core.network import Address, Connection, ConnectionLost, Listener
from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.frames import FrameReader
from barnabas.protocol.headers import (
    LENGTH_BYTES,
    RequestHeader,
    begin_response,
    read_request_header,
    set_length,
    skip_header_tags,
)
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.schema import Message

API_VERSIONS, ENVELOPE = 18, 58
PORT = 9093


class Asked(NamedTuple):
    """A request; `envelope` is what it came in, if it did."""

    request: Message
    header: RequestHeader
    envelope: EnvelopeRequest | None = None


class HangUp(Exception):
    """Raised by `answer`: close the connection without an answer."""


class ScriptedController:
    """`answer` gives the response to a request, None to leave it open for ever. An EnvelopeResponse answers
    the Envelope itself, any other message what is in it."""

    def __init__(
        self,
        network: MemoryNetwork,
        node_id: int,
        answer: Callable[[Asked], Message | None],
        *,
        versions: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:
        self.node_id = node_id
        self.asked: list[Asked] = []
        self.connections: list[Connection] = []
        self.answer = answer
        self._network = network.host(self.host)
        self._versions = dict(versions or {})
        self._listener: Listener | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def host(self) -> str:
        return f"node{self.node_id}"

    @property
    def leader(self) -> tuple[int, Address]:
        """Its id and address, as the quorum knows them."""
        return self.node_id, Address(self.host, PORT)

    @property
    def names(self) -> list[str]:
        """The requests that came, by name."""
        return [type(each.request).__name__.removesuffix("Request") for each in self.asked]

    async def start(self) -> None:
        self._listener = await self._network.listen(self.host, PORT, self._accept)

    def stop(self) -> None:
        """As a process that dies: connections are lost, dials refused."""
        if self._listener is not None:
            self._listener.close()
        for connection in self.connections:
            connection.abort()

    async def close(self) -> None:
        self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, connection: Connection) -> None:
        self.connections.append(connection)
        self._tasks.append(asyncio.get_running_loop().create_task(self._serve(connection)))

    async def _serve(self, connection: Connection) -> None:
        reader = FrameReader(memoryview(bytearray(1 << 16)), 1 << 20)
        try:
            while (count := await connection.readinto(reader.buffer())) > 0:
                for frame in reader.received(count):
                    response = self._answered(frame)
                    if response is not None:
                        await connection.write([response])
        except HangUp:
            connection.close()
        except ConnectionLost:
            pass

    def _answered(self, frame: memoryview) -> bytearray | None:
        header = read_request_header(frame)
        if header.api_key == API_VERSIONS:
            return _framed(header, self._told(), flexible=True)
        request, flexible = _read(header, frame)
        asked = Asked(request, header)
        if isinstance(request, EnvelopeRequest):
            data = memoryview(request.request_data)
            inner = read_request_header(data)
            asked = Asked(_read(inner, data)[0], inner, request)
        self.asked.append(asked)
        answer = self.answer(asked)
        if answer is None:
            return None
        if asked.envelope is not None and not isinstance(answer, EnvelopeResponse):
            is_flexible = asked.header.api_version >= type(asked.request).__flexible__
            payload = _framed(asked.header, answer, flexible=is_flexible)
            answer = EnvelopeResponse(response_data=bytes(payload[LENGTH_BYTES:]), error_code=0)
        return _framed(header, answer, flexible=flexible)

    def _told(self) -> ApiVersionsResponse:
        ranges = {key: (api.first, api.last) for key, api in SERVED_BY_CONTROLLER.items()} | self._versions
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=keys)


def _class_of(served: Served, side: str) -> type[Message]:
    module = import_module(f"barnabas.protocol.messages.{served.module}")
    cls: type[Message] = getattr(module, served.name + side)
    return cls


def _read(header: RequestHeader, frame: memoryview) -> tuple[Message, bool]:
    cls = _class_of(SERVED_BY_CONTROLLER[header.api_key], "Request")
    flexible = header.api_version >= cls.__flexible__
    body = skip_header_tags(frame, header.end) if flexible else header.end
    return decode(cls, header.api_version, frame, body), flexible


def _framed(header: RequestHeader, message: Message, *, flexible: bool) -> bytearray:
    frame = begin_response(header.api_key, header.correlation_id, flexible=flexible)
    frame += encode(message, header.api_version)
    set_length(frame)
    return frame
