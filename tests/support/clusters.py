"""A cluster of real nodes in one process and in virtual time: disks and network in memory.

A test is a coroutine that gets a `VirtualCluster`; `run_cluster` runs it on a loop whose time passes by
itself when all tasks wait, so timeouts cost nothing and nothing depends on the machine's pace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

from barnabas.broker.node import Node
from barnabas.broker.storage.formatting import InitialVoter, format_directory
from barnabas.controller.bootstrap import bootstrap_records
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.memory_network import MemoryNetwork
from barnabas.core.random import SeededRandom
from barnabas.core.settings.sources import resolve
from barnabas.core.workers import InlineWorkers
from barnabas.log.checkpoints import MetaProperties
from barnabas.sim.clock import START_MS, SimClock
from barnabas.sim.loop import VirtualLoop

CLUSTER_ID = "Zm9yIHRlc3RzIG9ubHkgMQ"
BROKER_PORT, CONTROLLER_PORT = 9092, 9093


def host_of(node_id: int) -> str:
    return f"node-{node_id}"


def directory_of(node_id: int) -> UUID:
    return UUID(int=1000 + node_id)


class VirtualCluster:
    """Nodes `1..voters` are broker and controller, unless `roles` say otherwise; further ones are brokers."""

    def __init__(
        self,
        nodes: int = 3,
        voters: int = 3,
        *,
        roles: Mapping[int, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.ids = list(range(1, nodes + 1))
        self.voter_ids = self.ids[:voters]
        self.network = MemoryNetwork()
        self.disks: dict[int, MemoryDisk] = {}
        self.nodes: dict[int, Node] = {}
        self._roles = roles or {}
        self.settings = dict(settings or {})  # of the nodes that are started from now on
        self._lives = 0

    @property
    def voters(self) -> list[InitialVoter]:
        return [
            InitialVoter(each, host_of(each), CONTROLLER_PORT, directory_of(each)) for each in self.voter_ids
        ]

    def properties(self, node_id: int) -> dict[str, str]:
        is_voter = node_id in self.voter_ids
        roles = self._roles.get(node_id, "broker,controller" if is_voter else "broker")
        host = host_of(node_id)
        listeners = [f"PLAINTEXT://{host}:{BROKER_PORT}"] if "broker" in roles else []
        if "controller" in roles:
            listeners.append(f"CONTROLLER://{host}:{CONTROLLER_PORT}")
        servers = ",".join(f"{host_of(each)}:{CONTROLLER_PORT}" for each in self.voter_ids)
        return {
            "node.id": str(node_id),
            "process.roles": roles,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": servers,
            "log.dirs": "data",
            **self.settings,
        }

    async def format(self, node_id: int, *, is_initial: bool = True) -> None:
        """Give a node an empty directory; `is_initial` voters begin the quorum."""
        disk = self.disks[node_id] = MemoryDisk()
        await format_directory(
            disk,
            MetaProperties(CLUSTER_ID, node_id, directory_of(node_id)),
            bootstrap=bootstrap_records(),
            voters=self.voters if node_id in self.voter_ids and is_initial else (),
            listener="CONTROLLER",
            now_ms=START_MS,
        )

    async def start(self, *node_ids: int) -> None:
        """Start nodes together; returns when all serve."""
        chosen = node_ids or tuple(self.ids)
        for each in chosen:
            if each not in self.disks:
                await self.format(each)
        started = await asyncio.gather(*map(self._start, chosen))
        self.nodes |= dict(zip(chosen, started, strict=True))

    async def _start(self, node_id: int) -> Node:
        self._lives += 1
        disk = self.disks[node_id]
        return await Node.start(
            resolve(flags=self.properties(node_id), environment={}),
            disk=lambda path: disk,
            network=self.network.host(host_of(node_id)),
            clock=SimClock(asyncio.get_running_loop()),
            random=SeededRandom(self._lives),
            workers=InlineWorkers(),
            host_name=host_of(node_id),
        )

    async def kill(self, node_id: int) -> None:
        """End its process as SIGKILL does: connections close, dials are refused, the page cache stays."""
        await self.nodes.pop(node_id).abandon()

    async def stop(self) -> None:
        """Stop all cleanly, one after another."""
        for each in list(self.nodes):
            await self.nodes.pop(each).stop()

    def leader(self) -> Node | None:
        """The active controller, if there is one."""
        active = [each for each in self.nodes.values() if each.quorum.controller.is_active]
        return max(active, key=lambda node: node.quorum.driver.epoch, default=None)

    async def until(self, is_true: Callable[[], bool], what: str, seconds: float = 60) -> None:
        """Wait, in virtual time, for something that comes about by itself."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not is_true():
            assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {what}"
            await asyncio.sleep(0.01)


def run_cluster(scenario: Callable[[VirtualCluster], Awaitable[None]], cluster: VirtualCluster) -> None:
    """Run a scenario, and stop what is left of the cluster."""

    async def run() -> None:
        try:
            await scenario(cluster)
        finally:
            await asyncio.gather(*(each.abandon() for each in cluster.nodes.values()))

    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(run())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
