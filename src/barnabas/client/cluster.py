"""The client's view of a cluster: up-to-date metadata, and one connection to each broker in use.

One task fetches metadata: when it is needed, when an error shows that it is out of date, and when it is too
old. It requests the topics that this client uses. Connections are opened at first use; after a failure the
next attempt waits, longer each time. If none of the known brokers can be reached, the bootstrap addresses are
tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from barnabas import __version__
from barnabas.client.errors import (
    BrokerNotReachable,
    ClientClosed,
    TimedOut,
    broker_error,
    wire_error_of,
)
from barnabas.client.metadata import Leader, Metadata, Topic
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError
from barnabas.core.network import Address, ConnectionLost, Network
from barnabas.core.random import Random
from barnabas.protocol.frames import SCRATCH_BYTES
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.schema import EVERY_VERSION, NO_UUID, Message
from barnabas.transport.connection import BrokerConnection, open_connection
from barnabas.transport.link import Link
from barnabas.transport.waiting import Backoff, Wake, within

logger = logging.getLogger("barnabas.client")

M = TypeVar("M", bound=Message)

DEFAULT_PORT = 9092
# errors that a retry does not cure
_FINAL_TOPIC_ERRORS = frozenset(("INVALID_TOPIC_EXCEPTION", "TOPIC_AUTHORIZATION_FAILED"))
REBOOTSTRAP_REQUIRED = "REBOOTSTRAP_REQUIRED"


class ClientConfig(NamedTuple):
    """Settings of producers, consumers and admins."""

    client_id: str = "barnabas"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    allow_auto_topic_creation: bool = True

    def bounded(self, limit_ms: int) -> ClientConfig:
        """The same settings, with timeouts of connections and requests limited."""
        return self._replace(
            request_timeout_ms=min(self.request_timeout_ms, limit_ms),
            connect_timeout_ms=min(self.connect_timeout_ms, limit_ms),
        )


def parse_bootstrap(text: str) -> list[Address]:
    """Addresses written as `host:port,host:port`; IPv6 addresses are in brackets."""
    addresses = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, str(DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port[:6]) < 65536:
            raise ValueError(f"{part!r} is no address; write host:port")
        addresses.append(Address(host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no address of a broker is given; write host:port")
    return addresses


class Cluster:
    """Metadata and connections of one client."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        random: Random,
        bootstrap: str | Sequence[Address],
        config: ClientConfig | None = None,
    ) -> None:
        self.clock, self.random = clock, random
        self.config = config or ClientConfig()
        self.metadata = Metadata()
        self.backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, random)
        self.on_change: Callable[[], None] = lambda: None  # called when metadata or connections have changed
        self._network = network
        self._bootstrap = parse_bootstrap(bootstrap) if isinstance(bootstrap, str) else list(bootstrap)
        self._links: dict[Address, Link] = {}
        self._reconnect = Backoff(
            self.config.reconnect_backoff_ms, self.config.reconnect_backoff_max_ms, random
        )
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._tracked: dict[str, None] = {}
        self._wanted = Wake(clock)
        self._waiters: list[asyncio.Future[None]] = []  # for the next response
        self._served: list[asyncio.Future[None]] = []  # for the one under way
        self._fetched_at: float | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False

    # ---- metadata ----------------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int) -> Leader | None:
        """A partition's leader, if it is known."""
        return self.metadata.leader(topic, partition)

    def track(self, topic: str) -> None:
        """Keep metadata of a topic from now on."""
        if topic not in self._tracked:
            self._tracked[topic] = None
            self.refresh_soon()

    def refresh_soon(self) -> None:
        """Fetch metadata in the background: it is out of date, or incomplete."""
        self._check_open()
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep_fresh())
        self._wanted.call()

    async def refresh(self) -> None:
        """Fetch metadata now; BrokerNotReachable if no broker answers."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.refresh_soon()
        await waiter

    @property
    def where(self) -> str:
        """For messages: the known brokers, otherwise the bootstrap addresses."""
        return ", ".join(map(str, self.metadata.brokers.values() or self._bootstrap))

    async def topic(self, name: str, timeout_s: float) -> Topic:
        """The metadata of a topic, waiting for it if needed; raises UnknownTopic, TimedOut and others."""
        known = self.metadata.topics.get(name)
        if known is not None and known.error is None:
            return known
        is_new = name not in self._tracked
        try:
            return await self._wait_for(name, timeout_s)
        except (BarnabasError, asyncio.CancelledError):
            if is_new:
                self._tracked.pop(name, None)
            raise

    async def _wait_for(self, name: str, timeout_s: float) -> Topic:
        deadline = self.clock.monotonic() + timeout_s
        failure: BarnabasError | None = None
        while True:
            left = deadline - self.clock.monotonic()
            self._tracked[name] = None  # each time: another caller may have removed it
            try:
                await within(self.clock, left, self.refresh(), f"asking {self.where} for metadata of {name}")
            except TimedOut as error:
                failure = failure or error
            except BrokerNotReachable as error:
                failure = error
            known = self.metadata.topics.get(name)
            if known is not None:
                if known.error is None:
                    return known
                failure = broker_error(known.error, f"topic {name!r}")
                if _is_final(known):
                    raise failure
            if self.clock.monotonic() >= deadline:
                raise failure or TimedOut(f"no metadata of {name} within {timeout_s:g} s")

    async def _keep_fresh(self) -> None:
        max_age_s = self.config.metadata_max_age_ms / 1000
        failures = 0
        while True:
            await self._wanted.wait(None if self._fetched_at is None else self._fetched_at + max_age_s)
            self._served, self._waiters = self._waiters, []
            error: BarnabasError | None = None
            try:
                await self._fetch_metadata()
            except BarnabasError as failure:
                error = failure
                logger.warning("cannot fetch metadata: %s", failure)
            for waiter in self._served:
                if not waiter.done():
                    waiter.set_result(None) if error is None else waiter.set_exception(error)
            self.on_change()
            is_enough = error is None and all(self._is_good(name) for name in self._tracked)
            failures = 0 if is_enough else failures + 1
            if failures:
                await self.clock.sleep(self.backoff.seconds(failures))
                self._wanted.call()

    def _is_good(self, name: str) -> bool:
        topic = self.metadata.topics.get(name)
        return topic is not None and (_is_final(topic) or self.metadata.has_all_leaders(topic))

    async def _fetch_metadata(self) -> None:
        connection = await self.any_connection()
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name, topic_id=NO_UUID) for name in self._tracked],
            allow_auto_topic_creation=self.config.allow_auto_topic_creation,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        try:
            response = await connection.ask(request, MetadataResponse)
        except (ConnectionLost, TimedOut) as error:
            raise BrokerNotReachable(f"no metadata from {connection.peer}: {error}") from error
        if response.error_code:
            error_code = wire_error_of(response.error_code)
            if error_code.name == REBOOTSTRAP_REQUIRED:
                self._begin_anew()
                raise BrokerNotReachable(f"{connection.peer} sends its clients back to the bootstrap servers")
            raise broker_error(error_code, f"no metadata from {connection.peer}")
        self.metadata.update(response)
        self._fetched_at = self.clock.monotonic()
        self._drop_strangers()

    # ---- connections -------------------------------------------------------------------------------------

    def connection(self, node_id: int) -> BrokerConnection | None:
        """The connection to a broker if it is open; otherwise it is being opened, and `on_change` is
        called."""
        address = self.metadata.brokers.get(node_id)
        if address is None:
            self.refresh_soon()
            return None
        return self._link(address).ready()

    async def connect(self, node_id: int) -> BrokerConnection:
        """A connection to that broker, opened if needed."""
        address = self.metadata.brokers.get(node_id)
        if address is None:
            await self.refresh()
            address = self.metadata.brokers.get(node_id)
        if address is None:
            raise BrokerNotReachable(f"broker {node_id} is not in the cluster's metadata; is it down?")
        return await self._link(address).wait()

    async def any_connection(self) -> BrokerConnection:
        """A connection to any broker: the least busy open one, or the first that can be opened."""
        self._check_open()
        made = [link.made for link in self._links.values() if link.made is not None]
        if made:
            return min(made, key=lambda connection: connection.open_requests)
        known, candidates = list(self.metadata.brokers.values()), list[Address]()
        while known:
            candidates.append(known.pop(self.random.below(len(known))))
        tried: dict[Address, BarnabasError] = {}
        for address in dict.fromkeys(candidates + self._bootstrap):
            try:
                return await self._link(address).wait()
            except BarnabasError as error:
                tried[address] = error
        told = "; ".join(f"{address}: {reason}" for address, reason in tried.items())
        raise BrokerNotReachable(f"no broker can be reached ({told}); check the addresses, and that one runs")

    async def ask(
        self, request: Message, response: type[M], *, node_id: int | None = None, at_most: int = EVERY_VERSION
    ) -> M:
        """Send a request to a broker, or to any; the caller handles ConnectionLost and TimedOut."""
        connection = await (self.any_connection() if node_id is None else self.connect(node_id))
        return await connection.ask(request, response, at_most=at_most)

    def _link(self, address: Address) -> Link:
        self._check_open()
        link = self._links.get(address)
        if link is None:
            link = Link(address, self.clock, self._reconnect, self._open, self._link_changed)
            self._links[address] = link
        return link

    async def _open(self, address: Address) -> BrokerConnection:
        return await open_connection(
            self._network,
            self.clock,
            address,
            client_id=self.config.client_id,
            software_version=__version__,
            connect_timeout_s=self.config.connect_timeout_ms / 1000,
            request_timeout_s=self.config.request_timeout_ms / 1000,
            scratch=self._scratch,
        )

    def _link_changed(self, is_lost: bool) -> None:
        if is_lost and self.metadata.brokers and not self._closed:
            self.refresh_soon()
        self.on_change()

    def _drop_strangers(self) -> None:
        """Close connections to addresses of no known broker: bootstrap addresses, and removed brokers.

        A connection with requests in flight is closed another time.
        """
        known = set(self.metadata.brokers.values())
        if not known:
            return
        for address, link in list(self._links.items()):
            if address not in known and (link.made is None or not link.made.open_requests):
                self._links.pop(address).close()

    def _begin_anew(self) -> None:
        """Forget all brokers, and start again with the bootstrap addresses (KIP-1102)."""
        self.metadata.brokers.clear()
        links, self._links = self._links, {}
        for link in links.values():
            link.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("this client has been closed; make a new one")

    async def close(self) -> None:
        """Close all connections. It may be called repeatedly."""
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
        for waiter in (*self._served, *self._waiters):
            if not waiter.done():
                waiter.set_exception(ClientClosed("the client was closed meanwhile"))
        for link in self._links.values():
            link.close()
        self._links.clear()
        await asyncio.sleep(0)  # let cancelled tasks run


def _is_final(topic: Topic) -> bool:
    return topic.error is not None and topic.error.name in _FINAL_TOPIC_ERRORS
