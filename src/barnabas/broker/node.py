"""A node: its directories, listeners, controller and broker, from start to stop.

A node has a life in states (life.py), and one role or both. In the order of the start: the directories are
locked and read, the listeners bound, and the controller's listeners answer. When the metadata on this node
has all committed records, the broker registers, becomes active and answers, too. Connections that arrive
earlier wait. A clean stop begins with the broker's controlled shutdown, closes the listeners after it, and
ends with the checkpoints and the mark of a clean shutdown. An error that makes it unsafe to go on (`fail`)
ends the node without that mark, so that the next start checks the files. A disk that fails takes only its own
directory out of use, if the node can go on without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from barnabas.broker.broker_server import FINISH_SECONDS, BrokerServer
from barnabas.broker.connections.bound import BoundListeners
from barnabas.broker.controller_server import ControllerServer
from barnabas.broker.life import NodeLife, NodeState
from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.broker.services import Services
from barnabas.broker.settings.unenforced import UnenforcedSecurity
from barnabas.broker.shared_server import SharedServer
from barnabas.broker.storage.formatting import DirectoryRefused
from barnabas.broker.storage.founding import found_cluster
from barnabas.broker.storage.storage import Layout, Storage, open_storage, read_layout
from barnabas.controller.decisions import NotController
from barnabas.core.clock import Clock
from barnabas.core.disk import Disk
from barnabas.core.errors import BarnabasError, InvariantViolation, StorageError
from barnabas.core.network import CannotListen, Network
from barnabas.core.random import Random
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.listeners import Listener, Listeners, read_listeners
from barnabas.core.settings.security import UnsupportedSetting, refuse_unenforceable, warnings_of
from barnabas.core.workers import Workers
from barnabas.log.directory import LogDirectory

if TYPE_CHECKING:
    from barnabas.broker.metrics.endpoint import MetricsEndpoint
    from barnabas.broker.metrics.measuring import NodeMetrics

logger = logging.getLogger("barnabas.node")


# errors that end a start before it has changed anything but the epoch of the metadata log
REFUSALS = (DirectoryRefused, UnenforcedSecurity, UnsupportedSetting, CannotListen)


class Node:
    """A broker, a controller or both in this process. Made by `start`."""

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
        self.life = NodeLife()
        self.metrics: MetricsEndpoint | None = None
        self._network = network
        self._clock = clock
        self._random = random
        self._workers = workers
        self._host_name = host_name
        self._listeners = BoundListeners(network)
        self._storage: Storage | None = None
        self._shared: SharedServer | None = None
        self._controller: ControllerServer | None = None
        self._broker: BrokerServer | None = None
        self._advertised: tuple[Listener, ...] = ()  # addresses for clients
        self._tasks: list[asyncio.Task[Any]] = []
        self._failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._stopping: asyncio.Task[bool] | None = None
        self._began = clock.monotonic()

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
        on_quorum: Callable[[MetadataQuorum], None] = lambda quorum: None,
    ) -> Node:
        """Start a node; `disk` opens a directory that the settings name.

        Clients are told `host_name` for a listener that is bound to every interface and advertises no host.
        `on_quorum` is called with the node's part in the quorum before that starts; the simulator uses it.
        """
        refuse_unenforceable(settings)
        listeners = read_listeners(settings)
        for warning in warnings_of(settings, listeners):
            logger.warning("%s", warning)
        layout = read_layout(settings)
        node = cls(settings, ",".join(layout.log_dirs), network, clock, random, workers, host_name)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(node.abandon)
            try:
                await node._start(layout, disk, listeners, on_quorum)
            except REFUSALS:
                undo.pop_all()
                await node._hand_back()
                raise
            except NotController as error:
                # the node's own controller could not commit: the cause of that is why the node cannot start
                raise error.__cause__ or error from None
            undo.pop_all()
        return node

    async def _start(
        self,
        layout: Layout,
        disk: Callable[[str], Disk],
        listeners: Listeners,
        on_quorum: Callable[[MetadataQuorum], None],
    ) -> None:
        storage = self._storage = await open_storage(
            layout,
            disk,
            node_id=self.node_id,
            found_cluster=partial(
                found_cluster,
                settings=self.settings,
                listeners=listeners,
                host_name=self._host_name,
                clock=self._clock,
                random=self._random,
            ),
            on_failure=self._directory_failed,
            clock=self._clock,
            random=self._random,
            workers=self._workers,
        )
        self.cluster_id = storage.cluster_id
        await self._bind(listeners)
        controllers = listeners.controllers_at(self._listeners.ports, self._host_name)
        shared = self._shared = await SharedServer.open(
            self.settings,
            storage,
            controllers,
            inter_broker_listener=listeners.inter_broker,
            network=self._network,
            clock=self._clock,
            random=self._random,
            fail=self.fail,
        )
        on_quorum(shared.quorum)
        if listeners.controller:
            controller = self._controller = ControllerServer(shared, self._run)
            self._listeners.serve(listeners.controller, controller.connections.accept)
            self._run(controller.connections.close_idle())
        self._run(shared.quorum.snapshots.keep())
        await shared.quorum.start()
        if self._controller is not None:
            self._run(self._controller.register(controllers))
        self._become(NodeState.CONTROLLER_UP)
        measured = None if self.metrics is None else self._measure(self.metrics, storage, shared)
        if listeners.inter_broker is None:
            self._run(self._follow(shared))
        else:
            await shared.caught_up()
            await self._start_broker(shared, storage, listeners, listeners.inter_broker)
        if measured is not None:
            measured.started(self._broker, self._clock.monotonic() - self._began)

    async def _follow(self, shared: SharedServer) -> None:
        """Follow the metadata of a node without a broker: it answers requests before it has caught up, and
        fails if it finds the metadata unusable."""
        try:
            await shared.caught_up()
        except REFUSALS as error:
            self.fail(error)
        except BarnabasError:
            if shared.quorum.driver.failure is None:
                raise
            # otherwise the same error ends the node, and is logged there

    async def _start_broker(
        self, shared: SharedServer, storage: Storage, listeners: Listeners, inter_broker: str
    ) -> None:
        broker = self._broker = BrokerServer(
            self.settings,
            storage,
            shared,
            network=self._network,
            inter_broker_listener=inter_broker,
            run=self._run,
            fail=self.fail,
        )
        await broker.prepare()
        self._advertised = listeners.advertised_at(self._listeners.ports, self._host_name)
        await broker.register(self._random.uuid(), self._advertised)
        self._become(NodeState.FENCED)
        await broker.activate()
        self._become(NodeState.SERVING)
        self._listeners.serve(listeners.broker, broker.connections.accept)
        broker.serve()

    def _become(self, state: NodeState) -> None:
        """Go on to the next state of the start; raises if the node has failed meanwhile."""
        if self._failure.done():
            raise self._failure.result()
        self.life.become(state)

    async def _bind(self, listeners: Listeners) -> None:
        await self._listeners.bind((*listeners.broker, *listeners.controller))
        address = self.settings.string("barnabas.metrics.listen")
        if address is not None:
            from barnabas.broker.metrics.endpoint import MetricsEndpoint

            self.metrics = await MetricsEndpoint.open(address, self._network, self._clock)

    def _measure(self, endpoint: MetricsEndpoint, storage: Storage, shared: SharedServer) -> NodeMetrics:
        from barnabas.broker.metrics.measuring import NodeMetrics

        return NodeMetrics(
            endpoint,
            shared,
            self._controller,
            self.life,
            is_broker="broker" in self.settings.roles,
            directories=lambda: list(storage.all.values()),
            offline=lambda: list(storage.logs.missing),
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

    # --- parts of a node that has started

    @property
    def controller(self) -> ControllerServer:
        """The node's controller."""
        if self._controller is None:
            raise InvariantViolation(f"a node that is {self.life.state.value} has no controller")
        return self._controller

    @property
    def broker(self) -> BrokerServer:
        """The node's broker."""
        if self._broker is None:
            raise InvariantViolation(f"a node that is {self.life.state.value} has no broker")
        return self._broker

    @property
    def storage(self) -> Storage:
        """The node's directories."""
        if self._storage is None:
            raise InvariantViolation(f"a node that is {self.life.state.value} has no directories")
        return self._storage

    @property
    def services(self) -> Services:
        """The services of the node's broker."""
        return self.broker.services

    @property
    def shared(self) -> SharedServer:
        """What the node's controller and broker share."""
        if self._shared is None:
            raise InvariantViolation(f"a node that is {self.life.state.value} has no metadata")
        return self._shared

    @property
    def quorum(self) -> MetadataQuorum:
        """The node's part in the metadata quorum."""
        return self.shared.quorum

    @property
    def endpoints(self) -> list[str]:
        """Addresses for clients; of a node without a broker, the controller's addresses for other nodes."""
        told = self.quorum.driver.controllers if self._broker is None else self._advertised
        return [f"{at.host}:{at.port}" for at in told]

    @property
    def directories(self) -> list[LogDirectory]:
        """The log directories in use."""
        return list(self.storage.directories.values())

    def port_of(self, listener: str) -> int:
        """The port at which a listener is bound."""
        return self._listeners.ports[listener]

    # --- stop

    def fail(self, error: BaseException) -> None:
        """End the node, as it is not safe to go on; `failed` returns the first error."""
        self.life.fail()
        if not self._failure.done():
            self._failure.set_result(error)

    def _directory_failed(self, directory_id: UUID, error: StorageError) -> None:
        if self._broker is None:
            self.fail(error)
        else:
            self._broker.directory_failed(directory_id, error)

    async def failed(self) -> BaseException:
        """Wait until the node cannot go on; returns the error."""
        return await asyncio.shield(self._failure)

    async def stop(self) -> bool:
        """Stop cleanly: nothing has to be recovered at the next start. A node that has failed, or fails on
        the way, is abandoned. Returns whether the stop was clean. A second call waits for the first."""
        if self._stopping is None:
            if self.life.state is NodeState.STOPPED or self.life.has_failed:
                await self.abandon()
                return False
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
        return await asyncio.shield(self._stopping)

    async def _stop(self) -> bool:
        self.life.become(NodeState.CONTROLLED_SHUTDOWN)
        shared, broker = self.shared, self._broker
        if broker is not None:
            await broker.shut_down()
        self._listeners.close()
        if broker is not None:
            await broker.finish()
        await shared.quorum.resign()
        if self._controller is not None:
            await self._controller.connections.finish(FINISH_SECONDS)
        await self._end_tasks()
        await shared.close()
        if broker is not None:
            await broker.close()
        if self.life.has_failed:
            is_clean = False
            await self.storage.abandon()
        else:
            is_clean = await self.storage.close(-1 if broker is None else broker.membership.epoch)
        self.life.become(NodeState.STOPPED)
        return is_clean

    async def _hand_back(self) -> None:
        """Close after a refused start: it has changed nothing, so the next start need not recover."""
        await self._cut_off()
        if self._shared is not None:
            await self._shared.close()
        if self._storage is not None:
            previous_epoch = self._storage.previous_epoch
            await self._storage.close(-1 if previous_epoch is None else previous_epoch)
        self.life.become(NodeState.STOPPED)

    async def abandon(self) -> None:
        """Stop at once, as a crash would: the next start checks everything."""
        if self._stopping is not None and not self._stopping.done():
            self._stopping.cancel()
            await asyncio.gather(self._stopping, return_exceptions=True)
        if self.life.state is NodeState.STOPPED:
            return
        await self._cut_off()
        if self._shared is not None:
            await self._shared.abandon()
        if self._storage is not None:
            await self._storage.abandon()
        self.life.become(NodeState.STOPPED)

    async def _cut_off(self) -> None:
        self._listeners.close()
        if self._broker is not None:
            await self._broker.abandon()
        if self._controller is not None:
            await self._controller.connections.close()
        await self._end_tasks()

    async def _end_tasks(self) -> None:
        if self.metrics is not None:
            await self.metrics.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
