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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal

from barnabas.broker.cluster.membership import BrokerSuperseded, RegistrationTimedOut
from barnabas.broker.node import Node
from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.broker.storage.formatting import format_directory
from barnabas.controller.bootstrap import bootstrap_records
from barnabas.core.errors import StorageError
from barnabas.core.settings.sources import resolve
from barnabas.log.checkpoints import MetaProperties
from barnabas.sim.chance import between, node_stream
from barnabas.sim.clock import SimClock
from barnabas.sim.cluster.events import Superseded
from barnabas.sim.disk import Drive, SimDisk, at_once
from barnabas.sim.history import Crash, History, Started
from barnabas.sim.metadata_twin import MetadataTwin
from barnabas.sim.network import SimNetwork
from barnabas.sim.process import Process
from barnabas.sim.scenario import Formatted, MachinePlan
from barnabas.sim.trace import AddLine
from barnabas.sim.under_way import Call
from barnabas.sim.workers import SimWorkers

CONTROLLER = "CONTROLLER"
CONTROLLER_PORTS = 1000  # a controller listens that much above the broker
RESTART_S = (0.3, 4.0)

Kind = Literal["process", "power"]


class TwinWatch:
    """Watches the nodes of a simulation: what a leader publishes is held against its log."""

    def opened(self, machine: Machine, quorum: MetadataQuorum) -> None:
        """A process of that machine is about to take part in the quorum."""
        MetadataTwin(quorum, machine.broken)

    def ended(self, machine: Machine) -> None:
        """A process has ended, and the disk is as it leaves it; or the simulation has."""

    def watch(self, machines: Sequence[Machine]) -> None:
        """These are the machines there are."""

    def sample(self) -> None:
        """Look at what cannot be heard of."""


class Machine:
    """One node's machine. `settings` are those that all nodes share; the plan's own go over them. `trace`
    adds a line of this machine; `broken` is called with a text when something happens on it that never
    should. `life` counts the node's processes."""

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
        watch: TwinWatch | None = None,
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
        self._watch = watch or TwinWatch()
        self._random = node_stream(seed, plan.node, "machine")
        self.life = 0
        self.running: Node | None = None  # while it serves
        self._process: Process | None = None
        self._over = asyncio.Event()
        self._stop = asyncio.Event()
        self._outage_s = 0.0
        if plan.formatted is not None:
            self._format(plan.formatted)

    def _format(self, formatted: Formatted) -> None:
        meta = MetaProperties(formatted.cluster_id, self.node, formatted.directory_id)
        at_once(
            format_directory(
                self.drive.files,
                meta,
                bootstrap=bootstrap_records(),
                voters=formatted.voters,
                listener=CONTROLLER,
                now_ms=self.clock.wall_ms(),
            )
        )

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
        process, self.running = self._process, None
        calls = process.cut(silently=kind == "power") if process else []
        if kind == "power":
            self._network.go_dark(self.host)
        self._outage_s = outage_s
        self._loop.call_soon(self._settle, calls, kind)

    def restart(self, outage_s: float) -> None:
        """Stop the node cleanly, and start it again that much later."""
        self._outage_s = outage_s
        self._stop.set()

    def pause(self) -> None:
        """Stop its process, without its noticing."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        """Let its process go on."""
        if self._process is not None:
            self._process.resume()

    def _settle(self, calls: list[Call], kind: Kind) -> None:
        if self._process is not None:
            calls += self._process.cut(silently=kind == "power")  # one that has just been started
        self.drive.crash(calls, power=kind == "power")
        self._over.set()

    async def _live(self) -> None:
        """The life of one process, until nothing of it is left."""
        self.life += 1
        self._over.clear()
        self._stop.clear()
        random = node_stream(self._seed, self.node, f"broker {self.life}")
        process = self._process = Process(self._loop, self._network, self.host, self.clock, random, self.node)
        self._outage_s = between(self._random, *RESTART_S)
        serving = process.spawn(self._serve(process))
        over = self._loop.create_task(self._over.wait())
        await asyncio.wait((serving, over), return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        self.running = None
        if not self._over.is_set():
            self.drive.crash(process.cut(), power=False)  # an exit: handles and locks are gone, no byte is
        await process.bury()
        self._watch.ended(self)
        if not serving.cancelled() and (error := serving.exception()) is not None:
            self.broken(f"the broker ended by {type(error).__name__}: {error}")

    async def _serve(self, process: Process) -> None:
        """What the process does: as `barnabas serve`."""
        stopped = asyncio.create_task(_wait(self._stop))
        try:
            node = await _unless(stopped, self._start(process))
            if node is None:
                return
            self.running = node
            self._history.add(Started(self._loop.time(), self.node))
            failed = asyncio.create_task(node.failed())
            await asyncio.wait((failed, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not process.is_alive:
                return
            if failed.done():
                await self._give_up(node, failed.result())
            else:
                failed.cancel()
                await node.stop()
        except StorageError as error:
            if process.is_alive:
                self._note("storage-error", error)
        except RegistrationTimedOut as error:
            self.trace("machine", f"not started: {error}")
        finally:
            stopped.cancel()

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
            on_quorum=lambda quorum: self._watch.opened(self, quorum),
        )

    async def _give_up(self, node: Node, error: BaseException) -> None:
        if isinstance(error, StorageError):
            self._note("gave-up", error)
        elif isinstance(error, BrokerSuperseded):
            self._history.add(Superseded(self._loop.time(), self.node))
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
        "listeners": f"PLAINTEXT://{plan.address},{CONTROLLER}://{controller}",
    }


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _unless(stopped: asyncio.Task[None], starting: Coroutine[Any, Any, Node]) -> Node | None:
    """The node, None where it is to stop before it serves: one may wait for the others of its quorum."""
    start = asyncio.create_task(starting)
    await asyncio.wait((start, stopped), return_when=asyncio.FIRST_COMPLETED)
    if not start.done():
        start.cancel()
        await asyncio.wait((start,))
    return None if start.cancelled() else start.result()
