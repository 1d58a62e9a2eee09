"""Routes a frame to its handler and encodes the response: one router for each kind of listener.

The table of a router defines everything that its listeners serve: ApiVersions answers from it, and an API
that is not listed is refused. An API may have another handler at a controller's listener than at a broker's.
Codecs are loaded when first used. A handler gets the decoded request and returns the response, or None if the
client wants none (acks=0). The connection is closed for an API that is not served, for bytes that are no
request of the claimed version, and for a handler that fails unexpectedly: the stream cannot go on, and
clients reconnect.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.connections.later import LaterAnswer, LaterResponse
from barnabas.broker.handlers import SERVED, SERVED_BY_CONTROLLER, Served
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
    from barnabas.broker.services import ControllerServices

# Most appends and reads wait for nothing: after this many partitions a request yields to others.
PARTITIONS_A_TURN = 200
FETCH = 1  # the API that consumers and followers share
_KEY = struct.Struct(">h")

ANONYMOUS = "User:ANONYMOUS"  # there is no authentication yet, not between brokers either


class ClientConnection:
    """A handler's view of the connection of its request."""

    __slots__ = ("_on_close", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self._on_close: list[Callable[[], None]] | None = None  # rarely used

    def when_closed(self, call: Callable[[], None]) -> None:
        """Call `call` as soon as the connection has ended, by either side; at once if it has."""
        if not self.is_open:
            call()
        elif self._on_close is None:
            self._on_close = [call]
        else:
            self._on_close.append(call)

    def has_closed(self) -> None:
        """Called by the owner of the connection when it has ended."""
        self.is_open = False
        calls, self._on_close = self._on_close, None
        for call in calls or ():
            call()


class RequestContext(NamedTuple):
    """The sender of a request, and how it came; `is_forwarded` where a broker has forwarded it."""

    principal: str
    listener: str
    router: RequestRouter
    host: str
    client_id: str | None
    api_version: int
    is_forwarded: bool = False
    connection: ClientConnection | None = None  # None for this broker's own requests

    @property
    def is_at_controller(self) -> bool:
        """Whether the request arrived at a controller's listener, not at a broker's."""
        return self.router.served is SERVED_BY_CONTROLLER


Handle = Callable[[Any, RequestContext, Any], Awaitable[Message | None]]
Begin = Callable[[Any, RequestContext, Any], Awaitable[Message | LaterResponse | None]]


class NotServed(BarnabasError):
    """An API, or a version of it, that is not served."""

    wire = wire_error("UNSUPPORTED_VERSION")


class _Route(NamedTuple):
    """The handler and codecs of one API at one version."""

    handle: Begin
    decode: Decoder
    encode: Encoder
    is_flexible: bool


class RequestRouter:
    """The APIs that one kind of listener serves, and the routes that were used so far."""

    __slots__ = ("routes", "served")

    def __init__(self, served: dict[int, Served]) -> None:
        self.served = served
        self.routes: dict[tuple[int, int], _Route] = {}

    def route(self, header: RequestHeader) -> _Route:
        """Make the route of an API and version at its first use."""
        served, version = self.served[header.api_key], header.api_version
        request = _class_of(served, "Request")
        first, last = request.__versions__
        if not max(first, served.first) <= version <= min(last, served.last):
            raise NotServed(
                f"{served.name} is served from version {served.first} to {served.last}, not {version}"
            )
        route = self.routes[header.api_key, version] = _Route(
            self._module_of(request).begin if served.is_pipelined else self.handler_of(request),
            decoder(request, version),
            encoder(_class_of(served, "Response"), version),
            version >= request.__flexible__,
        )
        return route

    def handler_of(self, request: type[Message]) -> Handle:
        """The handler of an API, imported at its first use."""
        handle: Handle = self._module_of(request).handle
        return handle

    def _module_of(self, request: type[Message]) -> Any:
        served = self.served[request.__key__]
        return import_module(f"barnabas.broker.handlers.{served.handler or served.module}")

    def newest_version(self, request: type[Message]) -> int:
        """The newest version of an API that is served."""
        return min(request.__versions__[1], self.served[request.__key__].last)


BROKER_ROUTER = RequestRouter(SERVED)
CONTROLLER_ROUTER = RequestRouter(SERVED_BY_CONTROLLER)


def is_pipelined(frame: memoryview, router: RequestRouter) -> bool:
    """Whether a request may begin while responses of its kind are not complete yet."""
    if len(frame) < _KEY.size:
        return False
    served = router.served.get(_KEY.unpack_from(frame)[0])
    return served is not None and served.is_pipelined


def _class_of(served: Served, side: str) -> type[Message]:
    module = import_module(f"barnabas.protocol.messages.{served.module}")
    cls: type[Message] = getattr(module, served.name + side)
    return cls


async def answer(
    frame: memoryview,
    router: RequestRouter,
    listener: str,
    host: str,
    services: ControllerServices,
    connection: ClientConnection | None = None,
) -> list[Part] | LaterAnswer | None:
    """The response to a request, as parts to write; None if there is none. A LaterAnswer has the parts once
    the response is complete."""
    traffic = services.traffic
    began = 0.0 if traffic is None else services.clock.monotonic()
    header = read_request_header(frame)
    key, version = header.api_key, header.api_version
    route = router.routes.get((key, version))
    if route is None:
        if key not in router.served:
            raise NotServed(f"API {key} is not served at listener {listener}")
        if key == API_VERSIONS and not 0 <= version <= router.served[key].last:
            return _unsupported_api_versions(header, router)
        route = router.route(header)
    body = skip_header_tags(frame, header.end) if route.is_flexible else header.end
    # librdkafka leaves three bytes behind when it asks for all topics, and Kafka ignores them
    request = decode_with(route.decode, frame, body, exact=False)
    context = RequestContext(ANONYMOUS, listener, router, host, header.client_id, version, False, connection)
    response = await route.handle(request, context, services)
    if isinstance(response, LaterResponse):
        return LaterAnswer(response, partial(_answered, header, route, router, services, began))
    encoded = _answered(header, route, router, services, began, response)
    if traffic is not None and key == FETCH:
        traffic.fetched(version, request, services.clock.monotonic() - began)
    return encoded


def _answered(
    header: RequestHeader,
    route: _Route,
    router: RequestRouter,
    services: ControllerServices,
    began: float,
    response: Message | None,
) -> list[Part] | None:
    key, version, traffic = header.api_key, header.api_version, services.traffic
    encoded = None
    if response is not None:
        begun = begin_response(key, header.correlation_id, flexible=route.is_flexible)
        encoded = _encoded(response, route.encode, begun)
    if traffic is not None:
        seconds = services.clock.monotonic() - began
        traffic.answered(router.served[key].name, version, response, seconds)
    return encoded


def _encoded(response: Message, encode: Encoder, frame: bytearray) -> list[Part]:
    beside: list[Beside] = []
    encode(response, frame, beside)
    if not beside:
        set_length(frame)
        return [frame]
    set_length(frame, sum(size_of(one.records) for one in beside))
    return parts(frame, beside)


def _unsupported_api_versions(header: RequestHeader, router: RequestRouter) -> list[Part]:
    """Tell a client that is newer than this broker the versions served here, in the oldest format."""
    from barnabas.broker.handlers.api_versions import unsupported

    frame = begin_response(API_VERSIONS, header.correlation_id, flexible=False)
    response = unsupported(router.served)
    return _encoded(response, encoder(type(response), 0), frame)
