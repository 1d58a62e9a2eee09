"""A network in memory: hosts with names, and links between them that a test can hold, release and break.

A link is one direction between two hosts. A held link delivers nothing: bytes, ends and resets wait on it,
and connections across it are established only after its release; a partition is links held both ways. As with
TCP, bytes on one connection are never lost or reordered: either they arrive or the connection is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextvars import copy_context
from enum import Enum, auto
from itertools import combinations, count

from barnabas.core.connection import StreamConnection
from barnabas.core.disk import FileRange
from barnabas.core.network import Address, CannotListen, Connection, ConnectionLost, ConnectionRefused

PIPE_BYTES = 256 * 1024


class End(Enum):
    """Whether more bytes may come on a pipe."""

    NOT_YET = auto()
    ENDED = auto()
    RESET = auto()


class Link:
    """One direction between two hosts."""

    def __init__(self, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.name = f"{source}>{target}"
        self.open = asyncio.Event()
        self.open.set()
        self.pipes: dict[Pipe, None] = {}


class Pipe:
    """One direction of a connection: the bytes in flight, and those that have arrived."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.back = self  # the other direction, once it exists
        self.arrived = bytearray()
        self.end = End.NOT_YET
        self.is_cut = False  # nothing arrives any more, and neither end is told
        self.reader_left = False
        self.stirred = asyncio.Event()  # set at every change; a waiter clears it before it waits
        self._on_the_way = bytearray()
        self._end_on_the_way = End.NOT_YET
        link.pipes[self] = None

    @property
    def room(self) -> int:
        return PIPE_BYTES - len(self.arrived) - len(self._on_the_way)

    @property
    def is_passing(self) -> bool:
        """Whether bytes sent now arrive."""
        return self.link.open.is_set() and not self.is_cut

    def send(self, buffers: list[memoryview]) -> int:
        room = self.room
        sent = 0
        for buffer in buffers:
            piece = buffer[: room - sent]
            self._on_the_way += piece
            sent += len(piece)
        self.deliver()
        return sent

    def finish(self, end: End) -> None:
        if end is End.RESET:
            self._on_the_way.clear()
        if self._end_on_the_way is not End.RESET:
            self._end_on_the_way = end
        self.deliver()

    def deliver(self, *, by_force: bool = False) -> None:
        """Let the bytes in flight arrive, unless the link is held."""
        if self.is_passing or by_force:
            self.arrived += self._on_the_way
            self._on_the_way.clear()
            self.end = self._end_on_the_way
        self.stir()

    def leave(self) -> None:
        self.reader_left = True
        self.stir()

    def take(self, max_bytes: int) -> bytes:
        data = bytes(self.arrived[:max_bytes])
        del self.arrived[:max_bytes]
        self.stir()
        return data

    def drop(self) -> None:
        self.finish(End.RESET)
        self.deliver(by_force=True)

    def stir(self) -> None:
        """Wake the waiters at both ends, and forget a pipe on which nothing can happen any more."""
        self.stirred.set()
        self.back.stirred.set()
        if self.end is End.RESET or (self.end is End.ENDED and self.reader_left):
            self.link.pipes.pop(self, None)


class PipeStream:
    """One end of a connection in memory."""

    def __init__(self, peer: Address, incoming: Pipe, outgoing: Pipe) -> None:
        self.peer = peer
        self.incoming = incoming
        self.outgoing = outgoing
        self.is_closed = False

    def try_read(self, max_bytes: int) -> bytes | None:
        pipe = self.incoming
        if self.is_closed:
            raise ConnectionLost(f"the connection with {self.peer} is closed on this side")
        if pipe.arrived:
            return pipe.take(max_bytes)
        if pipe.end is End.RESET:
            raise self._reset_by_peer()
        return b"" if pipe.end is End.ENDED else None

    def try_readinto(self, buffer: bytearray | memoryview) -> int | None:
        data = self.try_read(len(buffer))
        if data is None:
            return None
        buffer[: len(data)] = data
        return len(data)

    def try_send(self, buffers: list[memoryview], *, more: bool) -> int:
        if self.is_closed or self._is_refused:
            raise self._reset_by_peer()
        return self.outgoing.send(buffers)

    def try_send_file(self, part: FileRange) -> int | None:
        return None

    async def readable(self) -> None:
        pipe = self.incoming
        while not (pipe.arrived or pipe.end is not End.NOT_YET or self.is_closed):
            pipe.stirred.clear()
            await pipe.stirred.wait()

    async def writable(self) -> None:
        pipe = self.outgoing
        while not (pipe.room or self._is_refused or self.is_closed):
            pipe.stirred.clear()
            await pipe.stirred.wait()

    def end(self) -> None:
        self.outgoing.finish(End.ENDED)

    def close(self, *, reset: bool) -> None:
        self.is_closed = True
        self.incoming.leave()
        self.outgoing.finish(End.RESET if reset else End.ENDED)

    def vanish(self) -> None:
        """This end is gone without telling its peer."""
        self.is_closed = True
        self.incoming.stir()
        self.outgoing.stir()

    @property
    def _is_refused(self) -> bool:
        """Whether this end knows that the other one does not read any more."""
        incoming, outgoing = self.incoming, self.outgoing
        heard_of_it = incoming.is_passing and outgoing.is_passing
        return incoming.end is End.RESET or (outgoing.reader_left and heard_of_it)

    def _reset_by_peer(self) -> ConnectionLost:
        return ConnectionLost(f"the connection with {self.peer} is lost: reset by the peer")


class MemoryListener:
    """An address at which a host listens."""

    def __init__(
        self,
        network: MemoryNetwork,
        host_name: str,
        address: Address,
        on_connection: Callable[[Connection], None],
    ) -> None:
        self.address = address
        self.host_name = host_name
        self.context = copy_context()  # connections run in the context of the listener, not of the caller
        self._network = network
        self._on_connection = on_connection

    def accept(self, connection: StreamConnection) -> None:
        if self._network.listeners.get(self.address) is self:
            self._on_connection(connection)
        else:
            connection.abort()

    def close(self) -> None:
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]


class MemoryNetwork:
    """The links between all hosts."""

    def __init__(self) -> None:
        self.listeners: dict[Address, MemoryListener] = {}
        self.ports = count(49152)
        self._links: dict[tuple[str, str], Link] = {}

    def host(self, name: str) -> MemoryHost:
        """The network as seen by one host."""
        return MemoryHost(self, name)

    def hold(self, source: str, target: str) -> None:
        """Stop delivery from `source` to `target`."""
        self.link(source, target).open.clear()

    def release(self, source: str, target: str) -> None:
        """Deliver what waits on the link, and everything after it."""
        link = self.link(source, target)
        link.open.set()
        for pipe in list(link.pipes):
            pipe.deliver()

    def partition(self, *groups: Iterable[str]) -> None:
        """Hold everything between hosts of different groups."""
        for some, others in combinations([list(group) for group in groups], 2):
            for one in some:
                for other in others:
                    self.hold(one, other)
                    self.hold(other, one)

    def heal(self) -> None:
        """Release every link."""
        for source, target in list(self._links):
            self.release(source, target)

    def drop(self, one: str, other: str) -> None:
        """Break every connection between two hosts, at both ends, at once."""
        for link in (self.link(one, other), self.link(other, one)):
            for pipe in list(link.pipes):
                pipe.drop()

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(source, target)
        return link

    def pipe(self, link: Link) -> Pipe:
        """One direction of a new connection."""
        return Pipe(link)

    def join(self, caller: str, listener: MemoryListener) -> tuple[PipeStream, PipeStream]:
        """The two ends of a new connection: the caller's and the listener's."""
        there = listener.host_name
        going, coming = self.pipe(self.link(caller, there)), self.pipe(self.link(there, caller))
        going.back, coming.back = coming, going
        accepted = PipeStream(Address(caller, next(self.ports)), going, coming)
        connection = StreamConnection(accepted)
        asyncio.get_running_loop().call_soon(listener.accept, connection, context=listener.context)
        return PipeStream(listener.address, coming, going), accepted


class MemoryHost:
    """The network interface of one host."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self.name = name
        self._network = network

    async def listen(
        self, host: str, port: int, on_connection: Callable[[Connection], None]
    ) -> MemoryListener:
        network = self._network
        address = Address(self.name if host in ("", "0.0.0.0", "::") else host, port or next(network.ports))
        if address in network.listeners:
            raise CannotListen(f"cannot listen at {address}: another node is there")
        listener = MemoryListener(network, self.name, address, on_connection)
        network.listeners[address] = listener
        return listener

    async def connect(self, host: str, port: int) -> StreamConnection:
        network, address = self._network, Address(host, port)
        listener = network.listeners.get(address)
        there = listener.host_name if listener else host
        out, back = network.link(self.name, there), network.link(there, self.name)
        while not (out.open.is_set() and back.open.is_set()):
            await out.open.wait()
            await back.open.wait()
        listener = network.listeners.get(address)
        if listener is None:
            raise ConnectionRefused(f"cannot connect to {address}: nobody listens there")
        return StreamConnection(network.join(self.name, listener)[0])
