"""Requests from this broker to the brokers of the cluster, this one included.

A request to this broker goes to its own handler: the same messages in the newest version, without encoding. A
request to another broker goes to its inter-broker listener in the metadata, over a connection that is kept.
Brokers answer the requests of one connection in order, so requests that may take long have separate
connections (`way`), and requests to coordinators are divided over a few. After a failure the next attempt to
connect waits, longer each time in a row.

A request to the leader of a partition (`send_to_leader`) is given up when the metadata names another leader:
a broker that hangs would not answer before the request times out.

`PeerNotReachable` leaves open whether the other broker has carried out the request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from barnabas import __version__
from barnabas.broker.connections.requests import ANONYMOUS, BROKER_ROUTER, Handle, RequestContext
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.core.network import Address, ConnectionLost, Network
from barnabas.metadata.parts import ListenerImage
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.schema import Message

if TYPE_CHECKING:
    from barnabas.broker.services import Services
    from barnabas.coordination.effects import TopicPartition
    from barnabas.metadata.parts import TopicImage
    from barnabas.transport.connection import BrokerConnection
    from barnabas.transport.link import Link

M = TypeVar("M", bound=Message)

RECONNECT_MS, RECONNECT_MAX_MS = 50, 1_000
# the connections for requests to leaders: a partition that waits for its followers does not delay the others
LEADER_WAYS = range(-4, 0)


class PeerNotReachable(BarnabasError):
    """A request could not be sent to another broker, or was not answered."""

    wire = wire_error("NETWORK_EXCEPTION")


class Peers:
    """The brokers of the cluster, by their ids; `listener` is the name of the inter-broker listener."""

    def __init__(self, services: Services, network: Network, listener: str) -> None:
        self._services = services
        self._network = network
        self._listener = listener
        self._client_id = f"broker-{services.node_id}"
        self._own: dict[type[Message], tuple[Handle, RequestContext]] = {}
        self._links: dict[tuple[int, int], tuple[Address, Link]] = {}  # by broker and way
        self._moved: dict[asyncio.Future[None], tuple[TopicPartition, int]] = {}
        self._under_way: Counter[tuple[int, int]] = Counter()  # to leaders, in flight, by broker and way
        self._is_closed = False
        services.replicas.on_changed.append(self._topic_changed)

    def leader_of(self, place: TopicPartition) -> int:
        """The broker that leads a partition; without a leader this broker, whose handler answers with the
        error."""
        leader = self.known_leader_of(place)
        return self._services.node_id if leader is None else leader

    def known_leader_of(self, place: TopicPartition) -> int | None:
        """The broker that leads a partition; None without a leader."""
        topic = self._services.image.topic(place.topic)
        partition = None if topic is None else topic.partition(place.partition)
        return None if partition is None or partition.leader < 0 else partition.leader

    async def send_to_leader(
        self, place: TopicPartition, request: Message, response: type[M], *, needs: int = 0
    ) -> M:
        """The response of a partition's leader; given up when the leader changes."""
        node_id = self.leader_of(place)
        if node_id == self._services.node_id:
            return await self._hand_over(request, response)
        loop = asyncio.get_running_loop()
        way = min(LEADER_WAYS, key=lambda each: (self._under_way[node_id, each], each))
        asked = loop.create_task(self.send(node_id, request, response, needs=needs, way=way))
        moved: asyncio.Future[None] = loop.create_future()
        self._moved[moved] = place, node_id
        self._under_way[node_id, way] += 1
        try:
            await asyncio.wait((asked, moved), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise PeerNotReachable(f"broker {node_id} does not lead {place.topic}-{place.partition} now")
            return asked.result()
        finally:
            del self._moved[moved]
            self._under_way[node_id, way] -= 1
            asked.cancel()

    def _topic_changed(self, topic: TopicImage) -> None:
        for moved, (place, node_id) in self._moved.items():
            if place.topic == topic.name and self.known_leader_of(place) != node_id and not moved.done():
                moved.set_result(None)

    async def send(
        self, node_id: int, request: Message, response: type[M], *, needs: int = 0, way: int = 0
    ) -> M:
        """The response of a broker; `needs` is the oldest version of the request that can be used."""
        if node_id == self._services.node_id:
            return await self._hand_over(request, response)
        try:
            connection = await self._link(node_id, way).wait()
            if connection.versions.choose(type(request)) < needs:
                name = type(request).__name__.removesuffix("Request")
                raise NotSpoken(f"broker {node_id} is too old: it has no version {needs} of {name}")
            return await connection.ask(request, response)
        except (NotSpoken, PeerNotReachable):
            raise
        except BarnabasError as error:
            raise PeerNotReachable(f"broker {node_id} does not answer: {error}") from error

    def close(self) -> None:
        """Close all connections, and open no more."""
        self._is_closed = True
        for _, link in self._links.values():
            link.close()
        self._links.clear()

    async def _hand_over(self, request: Message, response: type[M]) -> M:
        cls = type(request)
        known = self._own.get(cls)
        if known is None:
            context = RequestContext(
                ANONYMOUS,
                self._listener,
                BROKER_ROUTER,
                "localhost",
                self._client_id,
                BROKER_ROUTER.newest_version(cls),
            )
            known = self._own[cls] = BROKER_ROUTER.handler_of(cls), context
        handle, context = known
        answer = await handle(request, context, self._services)
        assert isinstance(answer, response)
        return answer

    def _endpoint(self, node_id: int) -> ListenerImage:
        broker = self._services.image.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        if endpoint is None:
            raise PeerNotReachable(f"broker {node_id} has no listener {self._listener} in the metadata")
        return endpoint

    def _link(self, node_id: int, way: int) -> Link:
        if self._is_closed:
            raise ConnectionLost("this node is stopping")
        endpoint = self._endpoint(node_id)
        address = Address(endpoint.host, endpoint.port)
        known = self._links.get((node_id, way))
        if known is not None:
            if known[0] == address:
                return known[1]
            known[1].close()
        from barnabas.transport.link import Link  # a cluster of one dials nobody
        from barnabas.transport.waiting import Backoff

        backoff = Backoff(RECONNECT_MS, RECONNECT_MAX_MS, self._services.random)
        link = Link(address, self._services.clock, backoff, self._open, lambda is_lost: None)
        self._links[node_id, way] = address, link
        return link

    async def _open(self, address: Address) -> BrokerConnection:
        from barnabas.protocol.frames import SCRATCH_BYTES
        from barnabas.transport.connection import open_connection

        settings = self._services.settings
        return await open_connection(
            self._network,
            self._services.clock,
            address,
            client_id=self._client_id,
            software_version=__version__,
            connect_timeout_s=settings.integer("socket.connection.setup.timeout.ms") / 1000,
            request_timeout_s=settings.integer("request.timeout.ms") / 1000,
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
        )
