"""Envelope: a request that a broker forwards for a client (KIP-590), answered as if the client had sent it
here.

The principal is checked first, then the client's address, the header, whether the API may be forwarded, and
the body. An error in one of these is the error of the Envelope, as in Kafka:
PRINCIPAL_DESERIALIZATION_FAILURE, INVALID_REQUEST, UNSUPPORTED_VERSION, INVALID_REQUEST, UNSUPPORTED_VERSION.
A response with NOT_CONTROLLER is not passed on, but becomes the error of the Envelope: the broker looks for
the active controller and sends the request again. Other errors stay in the response.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.cluster.forwarding import tells_not_controller
from barnabas.core.errors import BarnabasError, InvariantViolation, WireError, wire_error
from barnabas.protocol.codecs import Encoder, decode_with
from barnabas.protocol.headers import (
    LENGTH_BYTES,
    RequestHeader,
    begin_response,
    read_request_header,
    skip_header_tags,
)
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.principals import PrincipalDeserializationFailure, decode_principal
from barnabas.protocol.schema import Message
from barnabas.protocol.wire import Beside, MalformedMessage

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import Begin, RequestContext
    from barnabas.broker.services import ControllerServices

logger = logging.getLogger("barnabas.controller")

FORWARDABLE = frozenset((19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 64, 67, 80, 81))
# the APIs of Kafka 4.3.0: a header of any other API cannot be read
_KNOWN = frozenset(range(93)) - {4, 5, 6, 7}


class _BadEnvelope(BarnabasError):
    wire = wire_error("INVALID_REQUEST")


class _NotRead(BarnabasError):
    wire = wire_error("UNSUPPORTED_VERSION")


class _Forwarded(NamedTuple):
    """A client's request from an Envelope, with its handler and its encoder."""

    handle: Begin
    request: Message
    context: RequestContext
    header: RequestHeader
    encode: Encoder
    is_flexible: bool


async def handle(
    request: EnvelopeRequest, context: RequestContext, services: ControllerServices
) -> EnvelopeResponse:
    try:
        forwarded = _opened(request, context)
    except BarnabasError as error:
        return _failed(error.wire)
    traffic, header = services.traffic, forwarded.header
    began = 0.0 if traffic is None else services.clock.monotonic()
    try:
        response = await forwarded.handle(forwarded.request, forwarded.context, services)
    except InvariantViolation:
        raise
    except Exception as error:  # other requests share the connection, and the broker would repeat this one
        logger.error("a forwarded request failed unexpectedly", exc_info=error)
        return _failed(wire_error("UNKNOWN_SERVER_ERROR"))
    assert isinstance(response, Message)  # no forwarded API is pipelined
    if traffic is not None:
        name = context.router.served[header.api_key].name
        traffic.answered(name, header.api_version, response, services.clock.monotonic() - began)
    if tells_not_controller(response):
        return _failed(wire_error("NOT_CONTROLLER"))
    frame = begin_response(header.api_key, header.correlation_id, flexible=forwarded.is_flexible)
    beside: list[Beside] = []
    forwarded.encode(response, frame, beside)
    assert not beside  # only records are sent beside a frame
    return EnvelopeResponse(response_data=bytes(frame[LENGTH_BYTES:]), error_code=0)


def _failed(error: WireError) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=None, error_code=error.code)


def _opened(envelope: EnvelopeRequest, context: RequestContext) -> _Forwarded:
    if envelope.request_principal is None:
        raise PrincipalDeserializationFailure("an Envelope without a principal")
    principal = decode_principal(envelope.request_principal)
    try:
        host = str(ipaddress.ip_address(bytes(envelope.client_host_address)))
    except ValueError as error:
        raise _BadEnvelope(f"the client's address: {error}") from None
    data, router = memoryview(envelope.request_data), context.router
    header = _header_of(data)
    key, version = header.api_key, header.api_version
    if key not in FORWARDABLE:
        raise _BadEnvelope(f"API {key} is not forwarded")
    if key not in router.served:
        raise _NotRead(f"API {key} is not served")
    route = router.routes.get((key, version)) or router.route(header)
    try:
        body = skip_header_tags(data, header.end) if route.is_flexible else header.end
        request = decode_with(route.decode, data, body, exact=False)
    except MalformedMessage as error:
        raise _NotRead(str(error)) from error
    forwarded = context._replace(
        principal=f"{principal.type}:{principal.name}",
        host=host,
        client_id=header.client_id,
        api_version=version,
        is_forwarded=True,
    )
    return _Forwarded(route.handle, request, forwarded, header, route.encode, route.is_flexible)


def _header_of(data: memoryview) -> RequestHeader:
    try:
        header = read_request_header(data)
    except MalformedMessage as error:
        raise _NotRead(str(error)) from error
    if header.api_key not in _KNOWN:
        raise _NotRead(f"API {header.api_key} is not known")
    return header
