"""A node put together, started and stopped: its directory, its part in the quorum, replicas and listeners.

The order of the start: the directory is locked and read, the metadata replayed, the ports bound, and the node
registered with the controller; only then are clients answered (those who come earlier wait). A clean stop is
the same backwards, and ends with the checkpoints and the mark of a clean shutdown. Whatever makes it unsafe
to go on (`fail`) ends the node without that mark, so that the next start checks what is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.broker.changes import follow
from barnabas.broker.connections import Connections, limits_of
from barnabas.broker.controller_channel import ControllerChannel
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.formatting import check_directory, format_directory, server_properties
from barnabas.broker.handlers import SERVED_BY_CONTROLLER
from barnabas.broker.membership import Membership
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.quorum import METADATA_LOG, MetadataQuorum
from barnabas.broker.quorum_snapshots import SnapshotPolicy
from barnabas.broker.replicas import Replicas
from barnabas.broker.requests import Door
from barnabas.broker.services import Services
from barnabas.controller.bootstrap import bootstrap_records
from barnabas.core.clock import Clock
from barnabas.core.disk import Disk
from barnabas.core.errors import StorageError
from barnabas.core.network import Connection, Network
from barnabas.core.network import Listener as OpenListener
from barnabas.core.random import Random
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.listeners import Listener, Listeners, read_listeners
from barnabas.core.settings.relations import read_voters
from barnabas.core.settings.security import refuse_unenforceable, warnings_of
from barnabas.core.workers import Workers
from barnabas.log.checkpoints import MetaProperties, uuid_to_text
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.housekeeping import Intervals, keep_house

if TYPE_CHECKING:
    from barnabas.broker.metrics.endpoint import MetricsEndpoint

logger = logging.getLogger("barnabas.node")


# what requests under way get when the node stops: an append is a matter of milliseconds
FINISH_SECONDS = 0.5


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
        """A node that serves clients; `disk` opens the directory that the settings name.

        `host_name` is what clients are told where a listener is on every interface and advertises none.
        """
        refuse_unenforceable(settings)
        listeners = read_listeners(settings)
        _refuse_other_nodes(settings)
        for warning in warnings_of(settings, listeners):
            logger.warning("%s", warning)
        path = _one_directory(settings)
        node = cls(settings, path, network, clock, random, workers, host_name)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(node.abandon)
            await node._start(disk(path), listeners)
            undo.pop_all()
        return node

    async def _start(self, disk: Disk, listeners: Listeners) -> None:
        meta = await self._identify(disk, listeners)
        assert meta.directory_id is not None
        self.cluster_id = meta.cluster_id
        self._logs = await LogDirectory.open(
            disk, clock=self._clock, random=self._random, workers=self._workers, on_failure=self.fail
        )
        await self._bind(listeners)
        self._quorum = await MetadataQuorum.open(
            self._logs,
            disk,
            node_id=self.node_id,
            directory_id=meta.directory_id,
            clock=self._clock,
            controllers=self._reachable(listeners.controller),
            min_insync_replicas=self.settings.integer("min.insync.replicas"),
            config=_metadata_log(self.settings),
            policy=SnapshotPolicy.of(self.settings),
            on_failure=self.fail,
        )
        image = self._quorum.image
        settings = CurrentSettings(self.node_id, image, self.settings)
        refuse_unenforceable(settings.broker)
        self._logs.config_of = lambda topic: settings.of_topic(topic).log
        controller = ControllerChannel(
            self._quorum, meta.cluster_id, self._random, settings.topic_policy, settings.config_rules
        )
        self._membership = Membership(self.node_id, controller)
        self._replicas = Replicas(self.node_id, image, self._logs, settings.of_topic)
        follow(self._quorum, self._replicas, settings)
        await self._replicas.set_strays_aside()
        await self._membership.join(
            cluster_id=meta.cluster_id,
            incarnation_id=self._random.uuid(),
            directory_id=meta.directory_id,
            listeners=self._advertised(listeners),
            rack=self.settings.string("broker.rack"),
            previous_epoch=self._logs.stopped_epoch,
        )
        self._serve(controller, settings)

    async def _identify(self, disk: Disk, listeners: Listeners) -> MetaProperties:
        """Whose directory it is; an empty one becomes that of this node."""
        meta = await check_directory(disk, self.node_id)
        if meta is not None:
            return meta
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
                disk.describe(""),
                node_id=self.node_id,
                listeners=listeners.broker,
                controllers=listeners.controller,
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

    def _serve(self, controller: ControllerChannel, settings: CurrentSettings) -> None:
        self.services = Services(
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            settings=settings,
            clock=self._clock,
            random=self._random,
            quorum=self._quorum,
            controller=controller,
            replicas=self._replicas,
            sessions=FetchSessions(
                self._clock,
                self._random,
                self.settings.integer("max.incremental.fetch.session.cache.slots"),
            ),
            producer_ids=ProducerIds(self._membership.allocate_producer_ids),
            stop=self.fail,
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
        cleaner = settings.cleaner if self.settings.boolean("log.cleaner.enable") else None
        self._run(keep_house(self._logs, self._clock, _intervals(self.settings), cleaner))

    def _measure(self, endpoint: MetricsEndpoint, settings: CurrentSettings) -> None:
        from barnabas.broker.metrics.measuring import measure

        measure(
            endpoint,
            self.services,
            self._connections,
            directories=lambda: [self._logs],
            offline=lambda: [],
            settings_of=settings.of_topic,
            start_seconds=self._clock.monotonic() - self._began,
        )

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("what runs in the background ended by an unexpected error", exc_info=error)
            self.fail(error)

    @property
    def endpoints(self) -> list[str]:
        """Where clients find this node."""
        broker = self._quorum.image.brokers[self.node_id]
        return [f"{at.host}:{at.port}" for at in broker.endpoints.values()]

    def port_of(self, listener: str) -> int:
        """The port at which a listener is bound."""
        return self._ports[listener]

    def fail(self, error: BaseException) -> None:
        """It is not safe to go on: `failed` tells whoever runs this node, and the first reason counts."""
        if not self._failure.done():
            self._failure.set_result(error)

    async def failed(self) -> BaseException:
        """Wait until the node cannot go on, and why."""
        return await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Stop cleanly: nothing has to be recovered at the next start."""
        for listener in self._open:
            listener.close()
        self._replicas.wake_readers()
        await self._connections.finish(FINISH_SECONDS)
        await self._close_doors()
        try:
            await self._membership.leave()
        except StorageError as error:  # a full disk does not keep the logs from being closed cleanly
            logger.error("the metadata will not tell of this stop: %s", error)
        await self._quorum.close()
        await self._replicas.close()
        await self._logs.close(self._membership.epoch)

    async def abandon(self) -> None:
        """Stop at once, as a crash would: the next start checks everything."""
        await self._close_doors()
        if hasattr(self, "_logs"):
            await self._logs.abandon()

    async def _close_doors(self) -> None:
        for listener in self._open:
            listener.close()
        for connection, _ in self._waiting or ():
            connection.abort()
        if self.metrics is not None:
            await self.metrics.close()
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


def _one_directory(settings: BrokerSettings) -> str:
    directories = settings.log_dirs
    if len(directories) != 1:
        raise InvalidSetting(
            f"log.dirs={','.join(directories)}: this version keeps its data in one directory; name one"
        )
    if settings.string("metadata.log.dir") not in (None, directories[0]):
        raise InvalidSetting(
            f"metadata.log.dir={settings.string('metadata.log.dir')}: this version keeps the metadata where "
            f"the data is, in {directories[0]}; leave it out"
        )
    return directories[0]


def _intervals(settings: BrokerSettings) -> Intervals:
    return Intervals(
        checkpoint_ms=settings.integer("log.flush.offset.checkpoint.interval.ms"),
        retention_ms=settings.integer("log.retention.check.interval.ms"),
    )


def _metadata_log(settings: BrokerSettings) -> LogConfig:
    return replace(
        METADATA_LOG,
        # the internal one goes below the usual minimum, for tests
        segment_bytes=settings.optional_integer("internal.metadata.log.segment.bytes")
        or settings.integer("metadata.log.segment.bytes"),
        segment_ms=settings.integer("metadata.log.segment.ms"),
    )
