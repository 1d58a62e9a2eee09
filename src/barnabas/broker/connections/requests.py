"""A frame's way to its handler and back: one table, and codecs that are loaded when first used.

The table is the whole truth about what is served: ApiVersions answers from it, and what it does not list is
refused. A handler gets the decoded request and gives the response, or None where the client wants none
(acks=0). An API that is not served, bytes that are no request of the version they claim, and a handler that
fails unexpectedly end the connection: the stream has lost its meaning, and clients reconnect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.handlers import SERVED, Served
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.core.network import Part
from barnabas.protocol.codecs import Decoder, Encoder, decode_with, decoder, encoder
from barnabas.protocol.headers import (
    API_VERSIONS,
    RequestHeader,
    begin_response,
    read_request_header,
    set_length,
    skip_header_tags,
)
from barnabas.protocol.schema import Message
from barnabas.protocol.wire import Beside, parts, size_of

if TYPE_CHECKING:
    from barnabas.broker.services import Services

# Most appends and reads wait for nothing: a request about more partitions gives way to others in between.
PARTITIONS_A_TURN = 200

ANONYMOUS = "User:ANONYMOUS"  # nobody says who he is yet, brokers included


class Door(NamedTuple):
    """Where a connection came in, and what is served there."""

    listener: str
    served: dict[int, Served] = SERVED


class RequestContext(NamedTuple):
    """Who asks, how, and through which door."""

    principal: str
    door: Door
    host: str
    client_id: str | None
    api_version: int

    @property
    def listener(self) -> str:
        return self.door.listener


Handle = Callable[[Any, RequestContext, "Services"], Awaitable[Message | None]]


class NotServed(BarnabasError):
    """An API, or a version of one, that this broker does not have."""

    wire = wire_error("UNSUPPORTED_VERSION")


class _Route(NamedTuple):
    """What is needed to answer one API at one version."""

    handle: Handle
    decode: Decoder
    encode: Encoder
    is_flexible: bool


_routes: dict[tuple[int, int], _Route] = {}


def _route(header: RequestHeader) -> _Route:
    key = (header.api_key, header.api_version)
    served = SERVED[header.api_key]
    request = _class_of(served, "Request")
    first, last = request.__versions__
    if not max(first, served.first) <= header.api_version <= min(last, served.last):
        raise NotServed(
            f"{served.name} is served from version {served.first} to {served.last}, not {header.api_version}"
        )
    version = header.api_version
    route = _routes[key] = _Route(
        handler_of(request),
        decoder(request, version),
        encoder(_class_of(served, "Response"), version),
        version >= request.__flexible__,
    )
    return route


def handler_of(request: type[Message]) -> Handle:
    """The handler of an API, imported when it is first asked for."""
    handle: Handle = import_module(f"barnabas.broker.handlers.{SERVED[request.__key__].module}").handle
    return handle


def newest_version(request: type[Message]) -> int:
    """The newest version of an API that is served here."""
    return min(request.__versions__[1], SERVED[request.__key__].last)


def _class_of(served: Served, side: str) -> type[Message]:
    module = import_module(f"barnabas.protocol.messages.{served.module}")
    cls: type[Message] = getattr(module, served.name + side)
    return cls


async def answer(frame: memoryview, door: Door, host: str, services: Services) -> list[Part] | None:
    """The response to a request, as parts to be written; None where there is none."""
    traffic = services.traffic
    began = 0.0 if traffic is None else services.clock.monotonic()
    header = read_request_header(frame)
    key, version = header.api_key, header.api_version
    if key not in door.served:
        raise NotServed(f"API {key} is not served at listener {door.listener}")
    route = _routes.get((key, version))
    if route is None:
        if key == API_VERSIONS and not 0 <= version <= SERVED[key].last:
            return _unsupported_api_versions(header, door)
        route = _route(header)
    body = skip_header_tags(frame, header.end) if route.is_flexible else header.end
    # librdkafka leaves three bytes behind when it asks for all topics, and Kafka ignores them
    request = decode_with(route.decode, frame, body, exact=False)
    context = RequestContext(ANONYMOUS, door, host, header.client_id, version)
    response = await route.handle(request, context, services)
    encoded = None
    if response is not None:
        begun = begin_response(key, header.correlation_id, flexible=route.is_flexible)
        encoded = _encoded(response, route.encode, begun)
    if traffic is not None:
        traffic.answered(SERVED[key].name, version, response, services.clock.monotonic() - began)
    return encoded


def _encoded(response: Message, encode: Encoder, frame: bytearray) -> list[Part]:
    beside: list[Beside] = []
    encode(response, frame, beside)
    if not beside:
        set_length(frame)
        return [frame]
    set_length(frame, sum(size_of(one.records) for one in beside))
    return parts(frame, beside)


def _unsupported_api_versions(header: RequestHeader, door: Door) -> list[Part]:
    """A client that is newer than this broker learns what is spoken here, in the oldest format."""
    from barnabas.broker.handlers.api_versions import unsupported

    frame = begin_response(API_VERSIONS, header.correlation_id, flexible=False)
    response = unsupported(door.served)
    return _encoded(response, encoder(type(response), 0), frame)
