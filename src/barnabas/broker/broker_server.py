"""The broker of a node: its registration, its replicas, and its listeners.

In the order of its life: the replicas follow the metadata, the broker registers and is fenced, reports the
directories of its partitions, becomes active, and then answers clients. A stop begins with the controlled
shutdown: other brokers take over its leaderships while this broker still answers. Then it answers the
requests under way and closes everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import UUID

from barnabas.broker.cluster.membership import Membership, MembershipTiming
from barnabas.broker.cluster.producer_ids import ProducerIds
from barnabas.broker.connections.connections import Connections, limits_of
from barnabas.broker.connections.requests import BROKER_ROUTER
from barnabas.broker.directories.placement import Placement
from barnabas.broker.directories.upkeep import Upkeep
from barnabas.broker.replicas.changes import follow
from barnabas.broker.replicas.fetch_sessions import FetchSessions
from barnabas.broker.replicas.leader_context import LeaderContext
from barnabas.broker.replicas.replica import Replica
from barnabas.broker.replicas.replicas import Replicas
from barnabas.broker.replicas.roles import Following
from barnabas.broker.services import Services
from barnabas.broker.shared_server import SharedServer
from barnabas.broker.storage.storage import Storage
from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.core.errors import StorageError
from barnabas.core.network import Network
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.listeners import Listener

if TYPE_CHECKING:
    from barnabas.broker.replicas.fetchers import Fetchers
    from barnabas.broker.replicas.partition_changes import PartitionChange, PartitionChanges

logger = logging.getLogger("barnabas.node")

# time for requests under way when the node stops: an append takes milliseconds
FINISH_SECONDS = 0.5

Run = Callable[[Coroutine[Any, Any, None]], Any]


class BrokerServer:
    """`prepare`, `register`, `activate` and `serve` come in this order. `run` starts background tasks."""

    def __init__(
        self,
        static: BrokerSettings,
        storage: Storage,
        shared: SharedServer,
        *,
        network: Network,
        inter_broker_listener: str,
        run: Run,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._static = static
        self._storage = storage
        settings, common = shared.settings, shared.services
        self._settings = settings
        self._shared = shared
        self._metadata = metadata = common.metadata
        self._network = network
        self._run = run
        self._fail = fail
        self._is_serving = False
        clock = common.clock
        self.membership = Membership(
            common.node_id,
            common.controller,
            image=lambda: metadata.image,
            clock=clock,
            timing=MembershipTiming.of(static),
            fail=fail,
            is_led=lambda: shared.quorum.driver.is_led,
        )
        leaders = LeaderContext(
            common.node_id,
            metadata,
            clock,
            static.integer("replica.lag.time.max.ms") / 1000,
            submit=self._submit,
            broker_epoch=lambda: self.membership.epoch,
        )
        self._changes: PartitionChanges | None = None  # None until an ISR change is needed
        self.replicas = Replicas(common.node_id, metadata, storage.logs, settings.of_topic, fail, leaders)
        follow(metadata, self.replicas)
        self._upkeep = Upkeep(
            storage, self.replicas, self.membership, metadata, settings, clock, run=run, fail=fail
        )
        self._placement = Placement(metadata, storage, self.replicas, self.membership, fail)
        slots = static.integer("max.incremental.fetch.session.cache.slots")
        self.services = Services(
            common,
            network=network,
            inter_broker_listener=inter_broker_listener,
            replicas=self.replicas,
            sessions=FetchSessions(clock, common.random, slots),
            producer_ids=ProducerIds(self.membership.allocate_producer_ids),
            storage=storage,
        )
        if not storage.logs.is_single:
            from barnabas.broker.directories.moves import BYTES_PER_SECOND, Moves

            self.services.moves = Moves(
                storage.logs,
                self.replicas,
                self.membership,
                clock,
                lambda: settings.broker.optional_integer(BYTES_PER_SECOND) or inf,
                fail,
            )
        self._inter_broker_listener = inter_broker_listener
        self.fetchers: Fetchers | None = None  # None until a replica follows another node
        self.replicas.on_role.append(self._has_role)
        self.connections = Connections(self.services, BROKER_ROUTER, limits_of(settings.broker))
        settings.subscribe(lambda altered: self.connections.limit(limits_of(altered)))

    def _has_role(self, replica: Replica) -> None:
        """Fetch a following replica. A node that leads all its partitions needs no fetchers."""
        if self.fetchers is None and isinstance(replica.role, Following):
            self.fetchers = self._make_fetchers()
        if self.fetchers is not None:
            self.fetchers.follow(replica)

    def _make_fetchers(self) -> Fetchers:
        from barnabas.broker.replicas.fetchers import Fetchers

        common = self._shared.services
        fetchers = Fetchers(
            common.node_id,
            self._metadata,
            self._network,
            self._inter_broker_listener,
            self._static,
            clock=common.clock,
            random=common.random,
            broker_epoch=lambda: self.membership.epoch,
            is_opening=lambda: self.replicas.is_opening,
            traffic=self.replicas.replication,
            fail=self._fail,
        )
        if self._is_serving:
            fetchers.begin()
        return fetchers

    def _submit(self, change: PartitionChange) -> None:
        """Ask the controller for another ISR of a partition that this node leads."""
        if self._changes is None:
            from barnabas.broker.replicas.partition_changes import PartitionChanges

            common = self._shared.services
            self._changes = PartitionChanges(
                common.node_id,
                common.controller,
                common.clock,
                broker_epoch=lambda: self.membership.epoch,
                fail=self._fail,
            )
        self._changes.submit(change)

    async def prepare(self) -> None:
        """Bring the directories in line with the metadata."""
        await self._storage.settle(self._metadata.image, self.membership.node_id)
        await self.replicas.set_strays_aside()

    async def register(self, incarnation_id: UUID, advertised: Sequence[Listener]) -> None:
        """Register with the controller; the broker is fenced."""
        self._found, self._anew = self._placement.survey()
        await self.membership.register(
            cluster_id=self.services.cluster_id,
            incarnation_id=incarnation_id,
            directory_ids=list(self._storage.directories),
            listeners=advertised,
            rack=self._static.string("broker.rack"),
            previous_epoch=self._storage.previous_epoch,
        )
        await self._storage.keep_epoch(self.membership.epoch)

    async def activate(self) -> None:
        """Report the directories of the partitions, and become active."""
        if self._found:
            await self.membership.assign_surely(self._found)
        await self.membership.activate()
        await self._shared.quorum.until(self._is_shown)
        if self._anew:
            await self.membership.assign_surely(self._anew)
        self._placement.follow()
        self._upkeep.follow_cordons()

    def _is_shown(self) -> bool:
        """Whether the metadata on this node shows this broker as active, or has another registration."""
        known = self._metadata.image.brokers.get(self.membership.node_id)
        return known is None or known.epoch != self.membership.epoch or known.is_active

    def serve(self) -> None:
        """Start the background work: open replicated partitions, fetch those that follow, keep the
        directories in order and load the coordinators."""
        self._is_serving = True
        if self.fetchers is not None:
            self.fetchers.begin()
        self.replicas.open_replicated()
        self._run(self.replicas.watch_lag(self.services.clock))
        self._run(self.membership.run())
        quorum = self._shared.quorum
        self._run(self.membership.greet(quorum.led_epoch, quorum.led_after))
        self._run(self.connections.close_idle())
        self._upkeep.begin(self._static)
        self.services.load_coordinators()

    def directory_failed(self, directory_id: UUID, error: StorageError) -> None:
        self._upkeep.failed(directory_id, error)

    async def shut_down(self) -> None:
        """The controlled shutdown: returns when this broker leads nothing any more, or cannot reach the
        controller."""
        try:
            await self.membership.leave()
        except NOT_COMMITTED as error:  # even with a full disk, the logs must be closed cleanly
            logger.error("the metadata will not tell of this stop: %s", error)

    async def finish(self) -> None:
        """Answer the requests under way, and close connections, coordinators and moves."""
        self.replicas.wake_readers()
        await self._stop_fetching()
        await self.services.close_coordinators()
        await self.connections.finish(FINISH_SECONDS)
        await self.cut_off()
        if self.services.moves is not None:
            await self.services.moves.close()

    async def _stop_fetching(self) -> None:
        if self.fetchers is not None:
            await self.fetchers.close()

    async def cut_off(self) -> None:
        """End all connections, and fail all requests that wait for coordinators."""
        await self.services.close_coordinators()
        self.services.close_peers()
        if self._changes is not None:
            await self._changes.close()
        await self.connections.close()

    async def close(self) -> None:
        """Wait for work on the disk and in the metadata that has begun."""
        await self._placement.close()
        await self.replicas.close()

    async def abandon(self) -> None:
        """Stop at once, as a crash would."""
        await self._placement.abandon()
        self.replicas.stop_opening()
        await self._stop_fetching()
        await self.cut_off()
        if self.services.moves is not None:
            await self.services.moves.abandon()
