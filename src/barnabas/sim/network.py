"""The simulated network: the one in memory, with latency, and with machines that fall silent.

Bytes on one connection arrive in their order, each delivery after a time of its own. A connection can be cut:
nothing arrives on it any more, and neither end is told. A process that dies resets its connections, as its
kernel would; a machine without power just falls silent, and once it is back answers whatever still comes on
an old connection with a reset.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import NamedTuple
from zlib import crc32

from barnabas.core.connection import StreamConnection
from barnabas.core.memory_network import (
    End,
    Link,
    MemoryHost,
    MemoryListener,
    MemoryNetwork,
    Pipe,
    PipeStream,
)
from barnabas.core.network import Address, Connection, ConnectionRefused
from barnabas.core.random import Random
from barnabas.sim.chance import between, happens
from barnabas.sim.trace import Trace

MIN_LATENCY_S, MAX_LATENCY_S = 50e-6, 1e-3
HICCUP, HICCUP_MIN_S, HICCUP_MAX_S = 0.02, 2e-3, 40e-3


class SimPipe(Pipe):
    """A pipe on which everything takes its time."""

    def __init__(self, link: Link, network: SimNetwork) -> None:
        super().__init__(link)
        self._network = network
        self._travelling: deque[tuple[bytes, End]] = deque()
        self._travelling_bytes = 0
        self._last_at = 0.0
        self._is_forgotten = False

    @property
    def room(self) -> int:
        return super().room - self._travelling_bytes

    def send(self, buffers: list[memoryview]) -> int:
        data = b"".join(buffers)[: self.room]
        if data:
            self._depart(data, End.NOT_YET)
        return len(data)

    def finish(self, end: End) -> None:
        self._depart(b"", end)

    def drop(self) -> None:
        """The connection is gone as far as the reader is concerned, now."""
        self._travelling.clear()
        self._travelling_bytes = 0
        super().finish(End.RESET)
        self.deliver(by_force=True)

    def cut(self) -> None:
        """Nothing arrives from now on."""
        self.is_cut = True

    def forget(self) -> None:
        """The machine at the other end is back, and does not know this connection."""
        self._is_forgotten = True
        if self._travelling or self._on_the_way:
            self._refuse()

    def _depart(self, data: bytes, end: End) -> None:
        if self._is_forgotten:
            self._refuse()
            return
        loop = asyncio.get_running_loop()
        self._last_at = max(self._last_at, loop.time() + self._latency_s())
        self._travelling.append((data, end))
        self._travelling_bytes += len(data)
        loop.call_at(self._last_at, self._arrive, context=Context())  # not the sender's: it may be paused

    def _arrive(self) -> None:
        """The next one in line is there, whichever timer it was that rang."""
        if not self._travelling:
            return
        data, end = self._travelling.popleft()
        self._travelling_bytes -= len(data)
        if not self.is_cut:
            self._network.trace("net", f"{self.link.name} {len(data)} {crc32(data):08x} {end.name}")
        self._on_the_way += data
        if end is End.NOT_YET:
            self.deliver()
        else:
            super().finish(end)

    def _refuse(self) -> None:
        back = self.back
        assert isinstance(back, SimPipe)
        asyncio.get_running_loop().call_later(self._latency_s(), back.drop)

    def _latency_s(self) -> float:
        return self._network.latency_s(self.link.source, self.link.target)


class Wire(NamedTuple):
    """A connection: who made it, who accepted it, and both ends."""

    caller: SimHost
    callee: SimHost
    caller_end: PipeStream
    callee_end: PipeStream
    going: SimPipe
    coming: SimPipe

    @property
    def name(self) -> str:
        return f"{self.caller.name}:{self.callee_end.peer.port}"

    @property
    def is_over(self) -> bool:
        return self.caller_end.is_closed and self.callee_end.is_closed

    @property
    def is_cut(self) -> bool:
        return self.going.is_cut

    def drop(self) -> None:
        """Reset at both ends."""
        self.going.drop()
        self.coming.drop()

    def cut(self) -> None:
        """Silence for both ends."""
        self.going.cut()
        self.coming.cut()


class SimNetwork(MemoryNetwork):
    """The wires of a simulation."""

    def __init__(self, random: Random, trace: Trace) -> None:
        super().__init__()
        self.trace = trace
        self.owners: dict[MemoryListener, SimHost] = {}
        self._random = random
        self._wires: list[Wire] = []
        self._dark: dict[str, asyncio.Event] = {}
        self._delays_s: dict[str, float] = {}
        self._refused: set[tuple[str, str]] = set()
        self._hanging: dict[tuple[str, str], asyncio.Event] = {}

    def refuse(self, source: str, target: str) -> None:
        """Refuse new connections from one host to another, though it listens."""
        self._refused.add((source, target))

    def hang(self, source: str, target: str) -> None:
        """Let new connections from one host to another hang."""
        self._hanging.setdefault((source, target), asyncio.Event())

    def let_dial(self, source: str, target: str) -> None:
        """Let new connections come about again."""
        self._refused.discard((source, target))
        hanging = self._hanging.pop((source, target), None)
        if hanging is not None:
            hanging.set()

    def is_refused(self, source: str, target: str) -> bool:
        return (source, target) in self._refused

    async def dialled(self, source: str, target: str) -> None:
        """Return when a connection from one host to another may come about, or be refused."""
        while (source, target) in self._hanging:
            await self._hanging[source, target].wait()

    def delay(self, name: str, delay_s: float) -> None:
        """Deliveries to and from a host take up to that much longer; 0: no longer than usual."""
        self._delays_s[name] = delay_s

    def latency_s(self, source: str, target: str) -> float:
        """How long a delivery takes from one host to another."""
        random = self._random
        delay_s = max(self._delays_s.get(source, 0.0), self._delays_s.get(target, 0.0))
        if delay_s and happens(random, 0.5):
            return delay_s * random.uniform()
        if happens(random, HICCUP):
            return between(random, HICCUP_MIN_S, HICCUP_MAX_S)
        return between(random, MIN_LATENCY_S, MAX_LATENCY_S)

    def wires(self) -> list[Wire]:
        """The connections that are not over."""
        self._wires = [wire for wire in self._wires if not wire.is_over]
        return self._wires

    def wires_of(self, name: str) -> list[Wire]:
        """The connections of a host that are not over, those that it made and those that it accepted."""
        return [wire for wire in self.wires() if name in (wire.caller.name, wire.callee.name)]

    def peers_of(self, name: str) -> list[str]:
        """The hosts to which a host has connections, in the order of their names."""
        ends = ((wire.caller.name, wire.callee.name) for wire in self.wires_of(name))
        return sorted({callee if caller == name else caller for caller, callee in ends})

    def heal(self) -> None:
        """Release every link, end every delay, and let everybody dial."""
        super().heal()
        self._delays_s.clear()
        self._refused.clear()
        for source, target in list(self._hanging):
            self.let_dial(source, target)

    def pipe(self, link: Link) -> Pipe:
        return SimPipe(link, self)

    def add_wire(self, caller: SimHost, listener: MemoryListener) -> Wire:
        """A connection has come about."""
        caller_end, callee_end = self.join(caller.name, listener)
        going, coming = caller_end.outgoing, caller_end.incoming
        assert isinstance(going, SimPipe)
        assert isinstance(coming, SimPipe)
        wire = Wire(caller, self.owners[listener], caller_end, callee_end, going, coming)
        self._wires.append(wire)
        self.trace("net", f"connected {wire.name}")
        return wire

    def go_dark(self, name: str) -> None:
        """A machine loses its power: nobody who calls it gets any answer."""
        self._dark.setdefault(name, asyncio.Event())

    def light(self, name: str) -> None:
        """It is back, and knows of no connection from before."""
        dark = self._dark.pop(name, None)
        if dark is None:
            return
        dark.set()
        for wire in self._wires:
            for host, pipe in ((wire.callee, wire.going), (wire.caller, wire.coming)):
                if host.name == name and pipe.is_cut:
                    pipe.forget()

    async def lit(self, name: str) -> None:
        """Return when that machine has power."""
        while name in self._dark:
            await self._dark[name].wait()


class SimHost(MemoryHost):
    """The network seam of one process, on the machine of that name."""

    def __init__(self, network: SimNetwork, name: str) -> None:
        super().__init__(network, name)
        self._sim = network
        self._listeners: list[MemoryListener] = []
        self._is_cut = False

    async def listen(
        self, host: str, port: int, on_connection: Callable[[Connection], None]
    ) -> MemoryListener:
        self._check()
        listener = await super().listen(host, port, on_connection)
        self._listeners.append(listener)
        self._sim.owners[listener] = self
        return listener

    async def connect(self, host: str, port: int) -> StreamConnection:
        network = self._sim
        for _ in ("there", "and back"):
            self._check()
            await network.lit(host)
            await network.dialled(self.name, host)
            out, back = network.link(self.name, host), network.link(host, self.name)
            while not (out.open.is_set() and back.open.is_set()):
                await out.open.wait()
                await back.open.wait()
            await asyncio.sleep(network.latency_s(self.name, host))
        self._check()
        listener = network.listeners.get(Address(host, port))
        if listener is None or network.is_refused(self.name, host):
            raise ConnectionRefused(f"cannot connect to {host}:{port}: nobody listens there")
        return StreamConnection(network.add_wire(self, listener).caller_end)

    def cut(self, *, silently: bool) -> None:
        """The process is dead. Its peers are told by its kernel, unless that is dead as well."""
        self._is_cut = True
        for listener in self._listeners:
            listener.close()
            self._sim.owners.pop(listener, None)
        for wire in self._sim.wires():
            for host, end, incoming in (
                (wire.caller, wire.caller_end, wire.coming),
                (wire.callee, wire.callee_end, wire.going),
            ):
                if host is not self:
                    continue
                if silently:
                    incoming.cut()
                    end.vanish()
                else:
                    end.close(reset=True)

    def _check(self) -> None:
        if self._is_cut:
            raise asyncio.CancelledError("the process has been killed")
