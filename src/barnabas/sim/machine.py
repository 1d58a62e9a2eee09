"""The machine of a node: its drive and its clock, the production node on them, and the supervisor that
starts it again.

A machine shares nothing with another but the network, on which it is known by its host. Its randomness is its
own, so what happens on one machine changes no draw of another.

A crash has three steps. At once the process is cut off from everything, so that nothing it had in mind gets
out; then the drive settles what was under way, and loses what the power kept; then the supervisor ends the
tasks of the dead process, and after a while starts a new one on what is left. A node that gives up, or does
not come up because of its disk, is started again, too, as an operator would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal

from barnabas.broker.node import Node
from barnabas.core.errors import StorageError
from barnabas.core.settings.sources import resolve
from barnabas.sim.chance import between, node_stream
from barnabas.sim.clock import SimClock
from barnabas.sim.disk import Drive, SimDisk
from barnabas.sim.history import Crash, History, Started
from barnabas.sim.metadata_twin import MetadataTwin
from barnabas.sim.network import SimNetwork
from barnabas.sim.process import Process
from barnabas.sim.scenario import MachinePlan
from barnabas.sim.trace import AddLine
from barnabas.sim.under_way import Call
from barnabas.sim.workers import SimWorkers

CONTROLLER_PORTS = 1000  # a controller listens that much above the broker
RESTART_S = (0.3, 4.0)

Kind = Literal["process", "power"]


class Machine:
    """One node's machine. `settings` are those that all nodes share; the plan's own go over them. `trace`
    adds a line of this machine; `broken` is called with a text when something happens on it that never
    should."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        network: SimNetwork,
        plan: MachinePlan,
        *,
        seed: int,
        settings: Mapping[str, str],
        history: History,
        trace: AddLine,
        broken: Callable[[str], None],
    ) -> None:
        self.node = plan.node
        self.host = plan.host
        self.address = plan.address
        self.clock = SimClock(loop, drift=plan.drift)
        self.drive = Drive(self.clock, node_stream(seed, plan.node, "drive"), trace)
        self.trace = trace
        self.broken = broken
        self._loop = loop
        self._network = network
        self._seed = seed
        self._settings = _place(plan) | {**settings, **plan.settings}
        self._history = history
        self._random = node_stream(seed, plan.node, "machine")
        self._lives = 0
        self._process: Process | None = None
        self._over = asyncio.Event()
        self._stop = asyncio.Event()
        self._outage_s = 0.0

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.is_alive

    def processes(self) -> list[Process]:
        """The node's, if there is one."""
        return [self._process] if self._process else []

    async def run(self) -> None:
        """Keep the node running, until cancelled."""
        try:
            while True:
                await self._live()
                await asyncio.sleep(self._outage_s)
                self._network.light(self.host)
        finally:
            if self._process is not None:
                self._process.cut()

    def crash(self, kind: Kind, outage_s: float) -> None:
        """The process dies, or the machine with it, and stays down for that long."""
        self._history.add(Crash(self._loop.time(), kind, self.node))
        process = self._process
        calls = process.cut(silently=kind == "power") if process else []
        if kind == "power":
            self._network.go_dark(self.host)
        self._outage_s = outage_s
        self._loop.call_soon(self._settle, calls, kind)

    def restart(self, outage_s: float) -> None:
        """Stop the node cleanly, and start it again that much later."""
        self._outage_s = outage_s
        self._stop.set()

    def _settle(self, calls: list[Call], kind: Kind) -> None:
        if self._process is not None:
            calls += self._process.cut(silently=kind == "power")  # one that has just been started
        self.drive.crash(calls, power=kind == "power")
        self._over.set()

    async def _live(self) -> None:
        """The life of one process, until nothing of it is left."""
        self._lives += 1
        self._over.clear()
        self._stop.clear()
        random = node_stream(self._seed, self.node, f"broker {self._lives}")
        process = self._process = Process(self._loop, self._network, self.host, self.clock, random, self.node)
        self._outage_s = between(self._random, *RESTART_S)
        serving = process.spawn(self._serve(process))
        over = self._loop.create_task(self._over.wait())
        await asyncio.wait((serving, over), return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not self._over.is_set():
            self.drive.crash(process.cut(), power=False)  # an exit: handles and locks are gone, no byte is
        await process.bury()
        if not serving.cancelled() and (error := serving.exception()) is not None:
            self.broken(f"the broker ended by {type(error).__name__}: {error}")

    async def _serve(self, process: Process) -> None:
        """What the process does: as `barnabas serve`."""
        try:
            node = await self._start(process)
            MetadataTwin(node.quorum, self.broken)
            self._history.add(Started(self._loop.time(), self.node))
            failed = asyncio.create_task(node.failed())
            stopped = asyncio.create_task(self._stop.wait())
            await asyncio.wait((failed, stopped), return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                await self._give_up(node, failed.result())
            else:
                failed.cancel()
                await node.stop()
        except StorageError as error:
            self._note("storage-error", error)

    async def _start(self, process: Process) -> Node:
        workers = SimWorkers(process.under_way, process.random)
        return await Node.start(
            resolve(flags=self._settings),
            disk=lambda path: SimDisk(self.drive, process.under_way),
            network=process.network,
            clock=self.clock,
            random=process.random,
            workers=workers,
            host_name=self.host,
        )

    async def _give_up(self, node: Node, error: BaseException) -> None:
        if isinstance(error, StorageError):
            self._note("gave-up", error)
        else:
            self.broken(f"the node gave up: {type(error).__name__}: {error}")
        await node.abandon()

    def _note(self, kind: str, error: StorageError) -> None:
        self.trace("machine", f"{kind}: {error}")
        if not self.drive.has_failed:
            self.broken(f"an error of a disk that has none: {error}")


def _place(plan: MachinePlan) -> dict[str, str]:
    """The settings that say which node it is, and where."""
    controller = f"{plan.host}:{plan.port + CONTROLLER_PORTS}"
    return {
        "node.id": str(plan.node),
        "log.dirs": "memory",
        "listeners": f"PLAINTEXT://{plan.address},CONTROLLER://{controller}",
    }
