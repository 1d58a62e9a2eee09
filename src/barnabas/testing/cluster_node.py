"""One node of a cluster under test: broker and controller on a thread and an event loop of its own.

    NEW -> RUNNING <-> PAUSED        strike: RUNNING, PAUSED or FAILED -> DEAD
    DEAD -> RUNNING (begin)          stop: RUNNING -> DEAD

A paused node's thread waits in the middle of its loop, as a process does that was stopped with SIGSTOP: the
kernel keeps its connections and takes new ones, and nothing is answered. Time goes on meanwhile. A node that
is killed has its sockets closed before anything else of it runs; what it had written stays in its disk.
A node that cannot go on (FAILED) is cut off likewise, as its process would have ended.

Methods are called by one thread at a time: `Cluster` sees to that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from barnabas.broker.node import Node
from barnabas.broker.storage.formatting import InitialVoter, format_directory
from barnabas.controller.bootstrap import bootstrap_records
from barnabas.core.clock import SystemClock
from barnabas.core.disk import Disk
from barnabas.core.event_loop import new_event_loop
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.os_disk import OsDisk
from barnabas.core.random import SystemRandom
from barnabas.core.settings.sources import resolve
from barnabas.core.workers import InlineWorkers, ThreadWorkers, Workers
from barnabas.log.checkpoints import MetaProperties
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.names import CONSUMER_OFFSETS
from barnabas.testing.broker import BrokerFailed
from barnabas.testing.node_network import Cuts, HeldPorts, NodeNetwork

T = TypeVar("T")

CALL_TIMEOUT_S = 60.0
FIND_TIMEOUT_S = 5.0  # another node may be asked

logger = logging.getLogger("barnabas.testing")


class NodeState(Enum):
    """Where a node stands."""

    NEW = "not started"
    RUNNING = "running"
    PAUSED = "paused"
    FAILED = "failed"
    DEAD = "not running"


class ClusterFailed(BrokerFailed):
    """The cluster under test could not do what was asked for, or did not come to what was waited for."""


class ClusterNode:
    """A node through all its lives. The first start formats its directory."""

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        directory: Path | None,
        host: str,
        cuts: Cuts,
    ) -> None:
        self.id = node_id
        self.host = host
        self.state = NodeState.NEW
        self.directory_id = SystemRandom().uuid()
        self.failure: BaseException | None = None
        self._cluster_id = cluster_id
        self._directory = directory
        self._cuts = cuts
        self._clock = SystemClock()
        self._memory: dict[str, MemoryDisk] = {}
        self._held = HeldPorts(host, 2)
        self.port, self.controller_port = self._held.ports
        for port in self._held.ports:
            cuts.belongs(port, node_id)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._network: NodeNetwork | None = None
        self._workers: Workers | None = None
        self._node: Node | None = None
        self._starting: Future[None] | None = None
        self._go_on = threading.Event()

    @property
    def node(self) -> Node:
        """The node itself, of a life that serves; it belongs to its own thread."""
        if self._node is None:
            raise ClusterFailed(f"node {self.id} is {self.state.value}")
        return self._node

    @property
    def is_running(self) -> bool:
        """Whether it runs, and may be about to serve."""
        return self.state is NodeState.RUNNING

    @property
    def is_serving(self) -> bool:
        """Whether it runs and has come to serve clients."""
        return self.state is NodeState.RUNNING and self._node is not None

    @property
    def is_alive(self) -> bool:
        """Whether it has a process, which may be paused or about to serve."""
        return self._loop is not None

    @property
    def image(self) -> ClusterImage | None:
        """The metadata that it has now, where it serves."""
        node = self._node
        return None if node is None else node.quorum.metadata.image

    @property
    def led_epoch(self) -> int:
        """The epoch in which it is the active controller; -1 where it is not."""
        node = self._node
        return node.quorum.driver.epoch if node is not None and node.quorum.controller.is_active else -1

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def voter(self) -> InitialVoter:
        return InitialVoter(self.id, self.host, self.controller_port, self.directory_id)

    # --- start

    def begin(self, voters: Sequence[InitialVoter], settings: Mapping[str, str]) -> Future[None]:
        """Start, and do not wait: the result comes when the node serves."""
        self._loop = loop = new_event_loop()
        name = f"barnabas-node-{self.id}"
        self._thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._workers = InlineWorkers() if self._directory is None else ThreadWorkers()
        self._network = NodeNetwork(self._workers, self.id, self._cuts, self._held)
        self._go_on.clear()
        self._held.hold()
        self.failure = None
        is_new, self.state = self.state is NodeState.NEW, NodeState.RUNNING
        work = self._start(voters if is_new else (), self._properties(voters, settings))
        self._starting = asyncio.run_coroutine_threadsafe(work, loop)
        return self._starting

    async def _start(self, voters: Sequence[InitialVoter], properties: Mapping[str, str]) -> None:
        assert self._network is not None
        assert self._workers is not None
        if voters:
            await self._format(voters)
        node = self._node = await Node.start(
            resolve(flags=properties, environment={}),
            disk=self._disk,
            network=self._network,
            clock=self._clock,
            random=SystemRandom(),
            workers=self._workers,
            host_name=self.host,
        )
        asyncio.get_running_loop().create_task(self._watch(node))

    async def _format(self, voters: Sequence[InitialVoter]) -> None:
        disk = self._disk("memory" if self._directory is None else str(self._directory))
        await format_directory(
            disk,
            MetaProperties(self._cluster_id, self.id, self.directory_id),
            bootstrap=bootstrap_records(),
            voters=voters,
            listener="CONTROLLER",
            now_ms=self._clock.wall_ms(),
        )
        if self._directory is not None:
            disk.close()

    async def _watch(self, node: Node) -> None:
        """A node that cannot go on ends its process."""
        self.failure = await node.failed()
        logger.error("node %d of the cluster under test has failed: %s", self.id, self.failure)
        self.state = NodeState.FAILED
        if self._network is not None:
            self._network.die()

    def _properties(self, voters: Sequence[InitialVoter], settings: Mapping[str, str]) -> dict[str, str]:
        def at(host: str, port: int) -> str:
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

        client, controller = at(self.host, self.port), at(self.host, self.controller_port)
        return {
            "log.dirs": "memory" if self._directory is None else str(self._directory),
            **settings,
            "node.id": str(self.id),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(at(each.host, each.port) for each in voters),
        }

    def _disk(self, path: str) -> Disk:
        if self._directory is not None:
            assert self._workers is not None
            return OsDisk(path, self._workers, self._clock)
        if path not in self._memory:
            name = f"memory-{self.id}:{path if self._memory else ''}"
            self._memory[path] = MemoryDisk(SystemRandom(), clock=self._clock, name=name)
        return self._memory[path]

    # --- of a life

    def partition_of(self, topic: str, key: str) -> int:
        """The partition of a coordinators' topic to which a group or a transactional id belongs; the topic is
        made if it is not there."""

        async def find() -> int:
            services = self.node.services
            coordinator = services.groups if topic == CONSUMER_OFFSETS else services.transactions
            await coordinator.find(key)
            return coordinator.partition_of(key)

        return self.run(find(), FIND_TIMEOUT_S)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = CALL_TIMEOUT_S) -> T:
        """Run something on the node's loop, and wait for its result."""
        if self._loop is None:
            work.close()
            raise ClusterFailed(f"node {self.id} is {self.state.value}")
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except (TimeoutError, CancelledError) as error:
            future.cancel()
            raise ClusterFailed(f"node {self.id} has not answered within {timeout_s:g} s") from error

    def pause(self) -> None:
        """Stop its thread where it is."""
        loop = self._loop
        if self.state is not NodeState.RUNNING or loop is None:
            raise ClusterFailed(f"node {self.id} cannot be paused: it is {self.state.value}")
        stands = threading.Event()
        self._go_on.clear()

        def stand() -> None:
            stands.set()
            self._go_on.wait()
            if self.state is NodeState.DEAD and self._network is not None:
                self._network.die()  # before anything else of it runs

        loop.call_soon_threadsafe(stand)
        if not stands.wait(CALL_TIMEOUT_S):
            self._go_on.set()
            raise ClusterFailed(f"node {self.id} cannot be paused: its loop does not answer")
        self.state = NodeState.PAUSED

    def resume(self) -> None:
        if self.state is not NodeState.PAUSED:
            raise ClusterFailed(f"node {self.id} is not paused: it is {self.state.value}")
        self.state = NodeState.RUNNING
        self._go_on.set()

    def look_again(self) -> None:
        """Tell its connections that a cut may have been healed."""
        loop, network = self._loop, self._network
        if loop is not None and network is not None:
            loop.call_soon_threadsafe(network.look_again)

    # --- the end of a life

    def strike(self) -> None:
        """End it as SIGKILL does: from now on nothing of it gets out. To be followed by `bury`."""
        loop, network = self._loop, self._network
        if loop is None or network is None:
            raise ClusterFailed(f"node {self.id} cannot be killed: it is {self.state.value}")
        was, self.state = self.state, NodeState.DEAD
        if was is NodeState.PAUSED:
            self._go_on.set()
        else:
            loop.call_soon_threadsafe(network.die)

    def bury(self) -> None:
        """Free what a node that was struck has had."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            with contextlib.suppress(CancelledError, Exception):
                self._starting.result(CALL_TIMEOUT_S)
        if self._node is not None:
            self.run(self._node.abandon())
        self._end_thread()
        for disk in self._memory.values():
            disk.crash_process()

    def stop(self) -> None:
        """Stop it cleanly: others lead first."""
        if not self.is_serving:
            raise ClusterFailed(f"node {self.id} cannot be stopped: it is {self.state.value}")
        try:
            self.run(self.node.stop())
        finally:
            self.state = NodeState.DEAD
            self._end_thread()

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        assert self._workers is not None
        self.run(_give_up())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._workers.close()
        self._loop = self._thread = self._network = self._workers = self._node = self._starting = None

    def close(self) -> None:
        """Let go of its ports, at the end of the cluster."""
        self._held.close()


async def _give_up() -> None:
    """End what is still under way on the loop, and what that begins."""
    while left := [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]:
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
