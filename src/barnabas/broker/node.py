"""A node put together, started and stopped: its directories, its part in the quorum, replicas and listeners.

The order of the start: the directories are locked and read, the metadata replayed, the ports bound, and the
node registered with the controller; only then are clients answered (those who come earlier wait). A clean
stop is the same backwards, and ends with the checkpoints and the mark of a clean shutdown. Whatever makes it
unsafe to go on (`fail`) ends the node without that mark, so that the next start checks what is there; a disk
that fails takes only its own directory along where the node can do without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import UUID

from barnabas.broker.cluster.controller_channel import ControllerChannel, LocalController
from barnabas.broker.cluster.membership import Membership
from barnabas.broker.cluster.producer_ids import ProducerIds
from barnabas.broker.connections.connections import Connections, limits_of
from barnabas.broker.connections.requests import Door
from barnabas.broker.directories.placement import Placement
from barnabas.broker.directories.upkeep import Upkeep
from barnabas.broker.handlers import SERVED_BY_CONTROLLER
from barnabas.broker.quorum.quorum import METADATA_LOG, MetadataQuorum
from barnabas.broker.quorum.snapshots import SnapshotPolicy
from barnabas.broker.replicas.changes import follow
from barnabas.broker.replicas.fetch_sessions import FetchSessions
from barnabas.broker.replicas.replicas import Replicas
from barnabas.broker.services import Services
from barnabas.broker.settings.current_settings import CurrentSettings
from barnabas.broker.settings.unenforced import ALLOW, UnenforcedSecurity, refuse_unenforced
from barnabas.broker.storage.formatting import DirectoryRefused, format_directory, server_properties
from barnabas.broker.storage.storage import Layout, open_storage, read_layout
from barnabas.controller.bootstrap import bootstrap_records
from barnabas.controller.decisions import NOT_COMMITTED, NotController
from barnabas.core.clock import Clock
from barnabas.core.disk import Disk
from barnabas.core.errors import StorageError
from barnabas.core.network import CannotListen, Connection, Network
from barnabas.core.network import Listener as OpenListener
from barnabas.core.random import Random
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.listeners import Listener, Listeners, read_listeners
from barnabas.core.settings.relations import read_voters
from barnabas.core.settings.security import UnsupportedSetting, refuse_unenforceable, warnings_of
from barnabas.core.workers import Workers
from barnabas.log.checkpoints import MetaProperties, uuid_to_text
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory

if TYPE_CHECKING:
    from barnabas.broker.metrics.endpoint import MetricsEndpoint

logger = logging.getLogger("barnabas.node")


# what requests under way get when the node stops: an append is a matter of milliseconds
FINISH_SECONDS = 0.5


# why a start ends before it has changed anything but the epoch of the metadata log
REFUSALS = (DirectoryRefused, UnenforcedSecurity, UnsupportedSetting, CannotListen)


class Node:
    """A broker and controller in this process. Made by `start`."""

    def __init__(
        self,
        settings: BrokerSettings,
        directory: str,
        network: Network,
        clock: Clock,
        random: Random,
        workers: Workers,
        host_name: str,
    ) -> None:
        self.settings = settings
        self.node_id = settings.node_id
        self.cluster_id = ""
        self.directory = directory
        self._network = network
        self._clock = clock
        self._random = random
        self._workers = workers
        self._host_name = host_name
        self._open: list[OpenListener] = []
        self._waiting: list[tuple[Connection, Door]] | None = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._began = clock.monotonic()
        self.metrics: MetricsEndpoint | None = None

    @classmethod
    async def start(
        cls,
        settings: BrokerSettings,
        *,
        disk: Callable[[str], Disk],
        network: Network,
        clock: Clock,
        random: Random,
        workers: Workers,
        host_name: str = "localhost",
    ) -> Node:
        """A node that serves clients; `disk` opens a directory that the settings name.

        `host_name` is what clients are told where a listener is on every interface and advertises none.
        """
        refuse_unenforceable(settings)
        listeners = read_listeners(settings)
        _refuse_other_nodes(settings)
        for warning in warnings_of(settings, listeners):
            logger.warning("%s", warning)
        layout = read_layout(settings)
        node = cls(settings, ",".join(layout.log_dirs), network, clock, random, workers, host_name)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(node.abandon)
            try:
                await node._start(layout, disk, listeners)
            except REFUSALS:
                undo.pop_all()
                await node._hand_back()
                raise
            except NotController as error:
                # the controller is this node's own: why it could not commit is why the node cannot start
                raise error.__cause__ or error from None
            undo.pop_all()
        return node

    async def _start(self, layout: Layout, disk: Callable[[str], Disk], listeners: Listeners) -> None:
        storage = self._storage = await open_storage(
            layout,
            disk,
            node_id=self.node_id,
            found_cluster=partial(self._found_cluster, listeners),
            on_failure=self._directory_failed,
            clock=self._clock,
            random=self._random,
            workers=self._workers,
        )
        self.cluster_id = storage.cluster_id
        self._logs = storage.logs
        await self._bind(listeners)
        self._quorum = await MetadataQuorum.open(
            storage.metadata,
            storage.metadata.disk,
            node_id=self.node_id,
            directory_id=storage.metadata_id,
            clock=self._clock,
            controllers=self._reachable(listeners.controller),
            min_insync_replicas=self.settings.integer("min.insync.replicas"),
            config=_metadata_log(self.settings),
            policy=SnapshotPolicy.of(self.settings),
            on_failure=self.fail,
        )
        metadata = self._quorum.metadata
        settings = CurrentSettings(self.node_id, metadata, self.settings)
        refuse_unenforceable(settings.broker)
        refuse_unenforced(metadata.image, storage.metadata.where, allowed=settings.broker.boolean(ALLOW))
        controller = LocalController(
            self._quorum.controller,
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            random=self._random,
            clock=self._clock,
            topic_policy=settings.topic_policy,
            config_rules=settings.config_rules,
            election_defaults=settings.election_defaults,
        )
        self._membership = Membership(self.node_id, controller)
        self._replicas = Replicas(self.node_id, metadata, self._logs, settings.of_topic, self.fail)
        follow(metadata, self._replicas, settings)
        self._upkeep = Upkeep(
            storage,
            self._replicas,
            self._membership,
            metadata,
            settings,
            self._clock,
            run=self._run,
            fail=self.fail,
        )
        self._placement = Placement(metadata, storage, self._replicas, self._membership, self.fail)
        await storage.settle(metadata.image, self.node_id)
        await self._replicas.set_strays_aside()
        await self._join(listeners)
        self._serve(controller, settings, listeners)

    async def _join(self, listeners: Listeners) -> None:
        """Register, say where the partitions are, and become active."""
        found, anew = self._placement.survey()
        await self._membership.register(
            cluster_id=self.cluster_id,
            incarnation_id=self._random.uuid(),
            directory_ids=list(self._storage.directories),
            listeners=self._advertised(listeners),
            rack=self.settings.string("broker.rack"),
            previous_epoch=self._storage.previous_epoch,
        )
        if found:
            await self._membership.assign(found)
        await self._membership.activate()
        if anew:
            await self._membership.assign(anew)
        self._placement.follow()
        self._upkeep.follow_cordons()

    async def _found_cluster(
        self, listeners: Listeners, disk: Disk, places: Mapping[str, str]
    ) -> MetaProperties:
        """Make an empty directory that of this node, and of a cluster of its own."""
        _refuse_to_found_another_cluster(self.settings, listeners)
        cluster_id = uuid_to_text(self._random.uuid())
        logger.info("a new directory: %s becomes that of cluster %s", disk.describe(""), cluster_id)
        return await format_directory(
            disk,
            node_id=self.node_id,
            cluster_id=cluster_id,
            directory_id=self._random.uuid(),
            controllers=listeners.controller,
            bootstrap=bootstrap_records(),
            properties=server_properties(
                places, node_id=self.node_id, listeners=listeners.broker, controllers=listeners.controller
            ),
            now_ms=self._clock.wall_ms(),
        )

    async def _bind(self, listeners: Listeners) -> None:
        self._ports: dict[str, int] = {}
        doors = [(one, Door(one.name)) for one in listeners.broker]
        doors += [(one, Door(one.name, SERVED_BY_CONTROLLER)) for one in listeners.controller]
        for listener, door in doors:
            accept = partial(self._accept, door)
            opened = await self._network.listen(listener.host, listener.port, accept)
            self._open.append(opened)
            self._ports[listener.name] = opened.address.port
        address = self.settings.string("barnabas.metrics.listen")
        if address is not None:
            from barnabas.broker.metrics.endpoint import MetricsEndpoint

            self.metrics = await MetricsEndpoint.open(address, self._network, self._clock)

    def _accept(self, door: Door, connection: Connection) -> None:
        if self._waiting is not None:
            self._waiting.append((connection, door))
        else:
            self._connections.accept(connection, door)

    def _reachable(self, listeners: tuple[Listener, ...]) -> list[Listener]:
        return [
            one._replace(host=one.host or self._host_name, port=one.port or self._ports[one.name])
            for one in listeners
        ]

    def _advertised(self, listeners: Listeners) -> tuple[Listener, ...]:
        return listeners.advertised_at(self._ports, self._host_name)

    def _serve(self, controller: ControllerChannel, settings: CurrentSettings, listeners: Listeners) -> None:
        assert listeners.inter_broker is not None  # it has the role
        self.services = Services(
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            settings=settings,
            clock=self._clock,
            random=self._random,
            network=self._network,
            inter_broker_listener=listeners.inter_broker,
            quorum=self._quorum.driver,
            metadata=self._quorum.metadata,
            controller=controller,
            replicas=self._replicas,
            sessions=FetchSessions(
                self._clock,
                self._random,
                self.settings.integer("max.incremental.fetch.session.cache.slots"),
            ),
            producer_ids=ProducerIds(self._membership.allocate_producer_ids),
            storage=self._storage,
            stop=self.fail,
        )
        if not self._logs.is_single:
            from barnabas.broker.directories.moves import BYTES_PER_SECOND, Moves

            self.services.moves = Moves(
                self._logs,
                self._replicas,
                self._membership,
                self._clock,
                lambda: settings.broker.optional_integer(BYTES_PER_SECOND) or inf,
                self.fail,
            )
        self._connections = Connections(self.services, limits_of(settings.broker))
        settings.subscribe(lambda altered: self._connections.limit(limits_of(altered)))
        waiting, self._waiting = self._waiting or [], None
        for connection, door in waiting:
            self._connections.accept(connection, door)
        if self.metrics is not None:
            self._measure(self.metrics, settings)
        self._run(self._connections.close_idle())
        self._run(self._quorum.snapshots.keep())
        self._upkeep.begin(self.settings)
        self._run(self.services.load_coordinators())

    def _measure(self, endpoint: MetricsEndpoint, settings: CurrentSettings) -> None:
        from barnabas.broker.metrics.measuring import measure

        measure(
            endpoint,
            self.services,
            self._connections,
            directories=lambda: list(self._storage.all.values()),
            offline=lambda: list(self._logs.missing),
            settings_of=settings.of_topic,
            start_seconds=self._clock.monotonic() - self._began,
        )

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("what runs in the background ended by an unexpected error", exc_info=error)
            self.fail(error)

    @property
    def quorum(self) -> MetadataQuorum:
        """This node's part in the metadata quorum."""
        return self._quorum

    @property
    def endpoints(self) -> list[str]:
        """Where clients find this node."""
        broker = self._quorum.metadata.image.brokers[self.node_id]
        return [f"{at.host}:{at.port}" for at in broker.endpoints.values()]

    @property
    def directories(self) -> list[LogDirectory]:
        """The log directories in use."""
        return list(self._storage.directories.values())

    def port_of(self, listener: str) -> int:
        """The port at which a listener is bound."""
        return self._ports[listener]

    def fail(self, error: BaseException) -> None:
        """It is not safe to go on: `failed` tells whoever runs this node, and the first reason counts."""
        if not self._failure.done():
            self._failure.set_result(error)

    def _directory_failed(self, directory_id: UUID, error: StorageError) -> None:
        if hasattr(self, "_upkeep"):
            self._upkeep.failed(directory_id, error)
        else:
            self.fail(error)

    async def failed(self) -> BaseException:
        """Wait until the node cannot go on, and why."""
        return await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Stop cleanly: nothing has to be recovered at the next start."""
        for listener in self._open:
            listener.close()
        self._replicas.wake_readers()
        await self.services.close_coordinators()
        await self._connections.finish(FINISH_SECONDS)
        await self._close_doors()
        if self.services.moves is not None:
            await self.services.moves.close()
        try:
            await self._membership.leave()
        except NOT_COMMITTED as error:  # a full disk does not keep the logs from being closed cleanly
            logger.error("the metadata will not tell of this stop: %s", error)
        await self._quorum.close()
        await self._placement.close()
        await self._replicas.close()
        await self._storage.close(self._membership.epoch)

    async def _hand_back(self) -> None:
        """What was refused was not touched, and whoever starts there next need not recover it."""
        await self._close_doors()
        if hasattr(self, "_storage"):
            previous_epoch = self._storage.previous_epoch
            await self._storage.close(-1 if previous_epoch is None else previous_epoch)

    async def abandon(self) -> None:
        """Stop at once, as a crash would: the next start checks everything."""
        await self._close_doors()
        if hasattr(self, "services") and self.services.moves is not None:
            await self.services.moves.abandon()
        if hasattr(self, "_storage"):
            await self._storage.abandon()

    async def _close_doors(self) -> None:
        for listener in self._open:
            listener.close()
        for connection, _ in self._waiting or ():
            connection.abort()
        if self.metrics is not None:
            await self.metrics.close()
        if hasattr(self, "services"):
            await self.services.close_coordinators()
            self.services.close_peers()
        if hasattr(self, "_connections"):
            await self._connections.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _refuse_other_nodes(settings: BrokerSettings) -> None:
    """A node that was to be part of something larger must not start as a cluster of its own."""
    if set(settings.roles) != {"broker", "controller"}:
        raise InvalidSetting(
            f"process.roles={','.join(settings.roles)}: this version is a cluster of one, broker and "
            "controller in one process; set process.roles=broker,controller"
        )
    others = [voter for voter in read_voters(settings) if voter.node_id != settings.node_id]
    if others or len(settings.strings("controller.quorum.bootstrap.servers")) > 1:
        raise InvalidSetting(
            "controller.quorum.voters and controller.quorum.bootstrap.servers name other nodes; this version "
            "is a cluster of one: name this node alone, or leave them out"
        )


def _refuse_to_found_another_cluster(settings: BrokerSettings, listeners: Listeners) -> None:
    """A new node that is told of a quorum elsewhere was meant to join it."""
    own_ports = {str(listener.port) for listener in listeners.controller}
    for server in settings.strings("controller.quorum.bootstrap.servers"):
        if server.rpartition(":")[2] not in own_ports:
            raise InvalidSetting(
                f"controller.quorum.bootstrap.servers={server}: no controller listener of this node is at "
                "that port, and this version cannot join a quorum elsewhere; name this node, or leave it out"
            )


def _metadata_log(settings: BrokerSettings) -> LogConfig:
    return replace(
        METADATA_LOG,
        # the internal one goes below the usual minimum, for tests
        segment_bytes=settings.optional_integer("internal.metadata.log.segment.bytes")
        or settings.integer("metadata.log.segment.bytes"),
        segment_ms=settings.integer("metadata.log.segment.ms"),
    )
