"""The fetchers of a node: a replica's role decides which fetcher it belongs to.

`follow` is called whenever a replica takes a role, a new one or the same again. A following replica belongs
to the fetcher of its leader's node; there is one fetcher for each node that leads a followed partition.

Fetching begins when the metadata on this node has this broker's own registration. Before that, a leader that
knows a later registration would take the requests for those of an earlier incarnation of this broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from barnabas import __version__
from barnabas.broker.replicas.fetcher import Fetcher, FetcherSettings
from barnabas.broker.replicas.follower_session import FetchLimits
from barnabas.broker.replicas.following import FollowedReplica, Key
from barnabas.broker.replicas.replica import Replica
from barnabas.broker.replicas.roles import Following
from barnabas.broker.traffic import ReplicationTraffic
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.core.network import Address, Network
from barnabas.core.random import Random
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.metadata.records import NO_LEADER
from barnabas.protocol.frames import SCRATCH_BYTES
from barnabas.transport.connection import BrokerConnection, open_connection
from barnabas.transport.link import Link
from barnabas.transport.waiting import Backoff

logger = logging.getLogger("barnabas.replicas")

RECONNECT_MS, RECONNECT_MAX_MS = 50, 1_000


class LeaderNotReachable(BarnabasError):
    """The metadata has no address for a leader."""

    wire = wire_error("LEADER_NOT_AVAILABLE")


class Fetchers:
    """All fetchers of a node. `broker_epoch` gives the epoch of its registration, `is_opening` says whether
    more replicas are being opened, `fail` ends the node."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataPublisher,
        network: Network,
        listener: str,
        static: BrokerSettings,
        *,
        clock: Clock,
        random: Random,
        broker_epoch: Callable[[], int],
        is_opening: Callable[[], bool],
        traffic: ReplicationTraffic,
        fail: Callable[[BaseException], None],
    ) -> None:
        self.node_id = node_id
        self.clock = clock
        self.settings = _settings(static)
        self.broker_epoch = broker_epoch
        self.is_opening = is_opening
        self.traffic = traffic
        self.fail = fail
        self.busy: dict[Key, asyncio.Task[None]] = {}
        self._metadata = metadata
        self._network = network
        self._listener = listener
        self._static = static
        self._random = random
        self._followed: dict[Key, FollowedReplica] = {}
        self._fetchers: dict[int, Fetcher] = {}
        self._ending: dict[asyncio.Task[None], None] = {}  # fetchers that follow no replica any more
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._is_due = self._has_begun = self._is_closed = False
        metadata.subscribe(self._published)

    @property
    def in_use(self) -> list[Fetcher]:
        """The fetchers, for metrics."""
        return list(self._fetchers.values())

    def followed(self, key: Key) -> FollowedReplica | None:
        """The followed replica with this key, if it is fetched."""
        return self._followed.get(key)

    # ---- followed replicas

    def follow(self, replica: Replica) -> None:
        """Fetch a replica from the leader of its role; stop where it has none."""
        key, role = (replica.topic_id, replica.partition), replica.role
        before = self._followed.get(key)
        if before is not None:
            fetcher = self._fetchers[before.leader]
            if before.is_of(replica):
                fetcher.try_again(before)
                return
            del self._followed[key]
            fetcher.leave(before)
        if isinstance(role, Following) and role.leader != NO_LEADER and not self._is_closed:
            self._add(FollowedReplica(replica, role))
        if before is not None and not len(fetcher):
            self._end(fetcher)

    def _add(self, one: FollowedReplica) -> None:
        self._followed[one.key] = one
        fetcher = self._fetchers.get(one.leader)
        if fetcher is None:
            fetcher = self._fetchers[one.leader] = Fetcher(one.leader, self, partial(self._dial, one.leader))
            if self._has_begun:
                fetcher.start()
        fetcher.follow(one)

    def _end(self, fetcher: Fetcher) -> None:
        del self._fetchers[fetcher.leader]
        task = asyncio.get_running_loop().create_task(fetcher.close())
        self._ending[task] = None
        task.add_done_callback(self._ending.pop)

    def ended(self, key: Key) -> None:
        """A task on a replica has ended: it can be fetched again."""
        one = self._followed.get(key)
        if one is not None:
            self._fetchers[one.leader].resume(one)

    # ---- start and close

    def begin(self) -> None:
        """Start fetching, as soon as the metadata has this broker's registration."""
        self._is_due = True
        if not self._has_begun and self._is_registered():
            self._has_begun = True
            for fetcher in self._fetchers.values():
                fetcher.start()

    def _is_registered(self) -> bool:
        known = self._metadata.image.brokers.get(self.node_id)
        return known is not None and known.epoch == self.broker_epoch()

    def _published(self, image: ClusterImage, delta: Delta) -> None:
        if self._is_due and not self._has_begun:
            self.begin()
        for broker_id in delta.changed_brokers:
            fetcher = self._fetchers.get(broker_id)
            if fetcher is not None and not fetcher.is_connected:
                fetcher.redial()  # the broker may just have come back

    async def close(self) -> None:
        """Stop fetching, and return when no task works on any replica."""
        self._is_closed = True
        for fetcher in list(self._fetchers.values()):
            self._end(fetcher)
        self._followed.clear()
        if self._ending:
            await asyncio.wait(self._ending)

    # ---- connections

    def _dial(self, leader: int) -> Link:
        backoff = Backoff(RECONNECT_MS, RECONNECT_MAX_MS, self._random)
        return Link(
            Address(f"broker {leader}", 0), self.clock, backoff, lambda _: self._open(leader), _nobody_cares
        )

    async def _open(self, leader: int) -> BrokerConnection:
        """A connection to the broker's address in the metadata."""
        broker = self._metadata.image.brokers.get(leader)
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        if endpoint is None:
            raise LeaderNotReachable(f"broker {leader} has no listener {self._listener} in the metadata")
        static = self._static
        return await open_connection(
            self._network,
            self.clock,
            Address(endpoint.host, endpoint.port),
            client_id=f"broker-{self.node_id}-fetcher",
            software_version=__version__,
            connect_timeout_s=static.integer("socket.connection.setup.timeout.ms") / 1000,
            request_timeout_s=static.integer("replica.socket.timeout.ms") / 1000,
            scratch=self._scratch,
        )


def _settings(static: BrokerSettings) -> FetcherSettings:
    limits = FetchLimits(
        static.integer("replica.fetch.wait.max.ms"),
        static.integer("replica.fetch.min.bytes"),
        static.integer("replica.fetch.response.max.bytes"),
        static.integer("replica.fetch.max.bytes"),
    )
    return FetcherSettings(limits, static.integer("replica.fetch.backoff.ms") / 1000)


def _nobody_cares(is_lost: bool) -> None:
    """The fetcher notices a lost connection by itself."""
