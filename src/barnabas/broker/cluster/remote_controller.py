"""The active controller on another node: sends requests to it, and returns the responses.

This node's own requests are sent as they are. A client's request is sent in an Envelope (KIP-590) with the
client's principal and address and a header of its own, in the newest version that the controller supports, up
to the client's. There is a connection for each kind of request, as in Kafka: a node answers the requests of a
connection one after another, and a change that takes long must not delay heartbeats. A connection is kept,
and opened anew, with its address resolved again, when it is lost or when another node leads.

`NotController` means that this attempt failed: the node does not lead, cannot be reached, or has not
answered. In the last case it may have carried out the request.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from barnabas import __version__
from barnabas.broker.cluster.forwarding import REGISTRATION_TIMEOUT_S, Leader
from barnabas.broker.connections.requests import RequestContext
from barnabas.controller.decisions import ForwardingFailed, NotController
from barnabas.core.clock import Clock
from barnabas.core.errors import wire_error
from barnabas.core.network import Address, ConnectionLost, Network
from barnabas.core.random import Random
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.frames import SCRATCH_BYTES
from barnabas.protocol.headers import LENGTH_BYTES, begin_request, read_response_header
from barnabas.protocol.messages.default_principal_data import DefaultPrincipalData
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.principals import encode_principal
from barnabas.protocol.schema import Message
from barnabas.protocol.wire import MalformedMessage
from barnabas.transport.connection import BrokerConnection, open_connection
from barnabas.transport.errors import ClientError, wire_error_of
from barnabas.transport.link import Link
from barnabas.transport.waiting import Backoff, within

M = TypeVar("M", bound=Message)

RECONNECT_MS = 50

_FORWARDING, _HEARTBEAT, _REGISTRATION = "forwarding", "heartbeat", "registration"
_CHANNELS = {56: "alter-partition", 62: _HEARTBEAT, 63: _HEARTBEAT, 70: _REGISTRATION, 73: "directories"}

_UNSUPPORTED = wire_error("UNSUPPORTED_VERSION").code
_NOT_CONTROLLER = wire_error("NOT_CONTROLLER").code


class RemoteController:
    """Sends requests to the current leader of the quorum."""

    def __init__(
        self,
        *,
        node_id: int,
        network: Network,
        clock: Clock,
        random: Random,
        settings: Callable[[], BrokerSettings],
    ) -> None:
        self._client_id = str(node_id)  # as in Kafka's brokers
        self._network = network
        self._clock = clock
        self._backoff = Backoff(RECONNECT_MS, RECONNECT_MS, random)
        self._settings = settings
        self._links: dict[str, tuple[Leader, Link]] = {}
        self._next_id = 0  # of requests in Envelopes
        self._is_closed = False

    async def ask(
        self,
        leader: Leader,
        request: Message,
        response: type[M],
        context: RequestContext | None = None,
        *,
        timeout_s: float,
    ) -> M:
        """The leader's response; a client's request has a context. NotController if there is none."""
        try:
            asking = self._ask(leader, request, response, context)
            return await within(self._clock, timeout_s, asking, f"an answer of node {leader[0]}")
        except (ConnectionLost, ClientError) as error:
            raise NotController(f"node {leader[0]} does not answer: {error}") from error

    def close(self) -> None:
        """Close all connections, and open no more."""
        self._is_closed = True
        for _, link in self._links.values():
            link.close()
        self._links.clear()

    async def _ask(
        self, leader: Leader, request: Message, response: type[M], context: RequestContext | None
    ) -> M:
        connection = await self._link(leader, _CHANNELS.get(request.__key__, _FORWARDING)).wait()
        if context is None:
            return await connection.ask(request, response)
        version = connection.versions.choose(type(request), context.api_version)
        self._next_id = correlation_id = (self._next_id + 1) & 0x7FFFFFFF
        envelope = enveloped(request, version, correlation_id, context)
        answer = await connection.ask(envelope, EnvelopeResponse)
        return _opened(answer, type(request), version, correlation_id, response)

    def _link(self, leader: Leader, channel: str) -> Link:
        if self._is_closed:
            raise ConnectionLost("this node is stopping")
        known = self._links.get(channel)
        if known is not None:
            if known[0] == leader:
                return known[1]
            known[1].close()
        open_ = partial(self._open, channel)
        link = Link(leader[1], self._clock, self._backoff, open_, lambda is_lost: None)
        self._links[channel] = leader, link
        return link

    async def _open(self, channel: str, address: Address) -> BrokerConnection:
        settings = self._settings()
        timeout_s = settings.integer("controller.socket.timeout.ms") / 1000
        if channel == _HEARTBEAT:
            timeout_s = min(timeout_s, settings.integer("broker.heartbeat.interval.ms") / 1000)
        elif channel == _REGISTRATION:
            timeout_s = min(timeout_s, REGISTRATION_TIMEOUT_S)
        return await open_connection(
            self._network,
            self._clock,
            address,
            client_id=self._client_id,
            software_version=__version__,
            connect_timeout_s=settings.integer("socket.connection.setup.timeout.ms") / 1000,
            request_timeout_s=timeout_s,
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
        )


def enveloped(
    request: Message, version: int, correlation_id: int, context: RequestContext
) -> EnvelopeRequest:
    """A client's request, with the client's principal and address."""
    cls = type(request)
    kind, _, name = context.principal.partition(":")
    principal = DefaultPrincipalData(type=kind, name=name, token_authenticated=False)
    header = begin_request(
        cls.__key__, version, correlation_id, context.client_id, flexible=version >= cls.__flexible__
    )
    return EnvelopeRequest(
        request_data=bytes(header[LENGTH_BYTES:]) + encode(request, version),
        request_principal=encode_principal(principal),
        client_host_address=_address_of(context.host),
    )


def _address_of(host: str) -> bytes:
    """The bytes of an IP address; the loopback address for a host without one (in memory)."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return ipaddress.IPv4Address("127.0.0.1").packed


def _opened(
    envelope: EnvelopeResponse, request: type[Message], version: int, correlation_id: int, response: type[M]
) -> M:
    """The response in an Envelope's response."""
    name = request.__name__.removesuffix("Request")
    code = envelope.error_code
    if code == _NOT_CONTROLLER:
        raise NotController("the node that was asked is not the active controller")
    if code == _UNSUPPORTED:
        raise NotSpoken(f"the active controller does not take {name} in version {version}")
    if code:
        raise ForwardingFailed(f"{name} could not be forwarded: {wire_error_of(code).name}")
    try:
        data = memoryview(envelope.response_data or b"")
        told_id, body = read_response_header(data, request.__key__, flexible=version >= request.__flexible__)
        if told_id != correlation_id:
            raise MalformedMessage(f"it answers request {told_id}, not {correlation_id}")
        return decode(response, version, data, body)
    except MalformedMessage as error:
        raise ForwardingFailed(f"the answer to {name} cannot be read: {error}") from error
