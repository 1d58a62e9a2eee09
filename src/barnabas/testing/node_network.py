"""The network of one node of a cluster under test: sockets on the loopback interface that can be cut and die.

A cut is what a broken cable is: nothing that either side sends arrives, no connection is made or lost by it,
and after `heal` connections go on where they were, unless one side has given them up meanwhile. It is made at
the side that dialled, which knows whom it has dialled; a node that is cut off from its clients too neither
reads nor sends on the connections that it has accepted. What is closed during a cut stays open towards the
other side until the cut is healed.

`die` is the end of a process: the kernel closes its connections and its listeners, with nothing sent that was
still waiting. The ports stay this node's: they are bound all the time, also while nothing listens there.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

from barnabas.core.connection import StreamConnection
from barnabas.core.disk import FileRange
from barnabas.core.network import Address, CannotConnect, Connection
from barnabas.core.os_network import OsListener, OsNetwork, SocketStream
from barnabas.core.workers import Workers

CLIENTS = -1  # as the other side of a connection that was accepted


class Cuts:
    """Which nodes of a cluster are cut off; asked by the loops of all nodes, changed by any thread."""

    def __init__(self) -> None:
        self._isolated: dict[int, bool] = {}  # and whether clients still reach them
        self._nodes: dict[int, int] = {}  # by port
        self._kept: list[tuple[int, int, socket.socket]] = []  # closed at one side alone
        self._lock = threading.Lock()

    def belongs(self, port: int, node_id: int) -> None:
        """A node listens at that port."""
        self._nodes[port] = node_id

    def node_at(self, port: int) -> int:
        return self._nodes.get(port, CLIENTS)

    def isolate(self, node_id: int, *, keep_clients: bool) -> None:
        self._isolated[node_id] = keep_clients

    def heal(self, node_id: int) -> None:
        """Connections go on; those that were closed meanwhile are closed for both sides now."""
        self._isolated.pop(node_id, None)
        with self._lock:
            kept, self._kept = self._kept, []
        for one, other, held in kept:
            self.hold(one, other, held)

    def is_isolated(self, node_id: int) -> bool:
        return node_id in self._isolated

    def is_cut(self, node_id: int, other: int) -> bool:
        """Whether nothing gets from one node to the other, or to clients."""
        if not self._isolated or node_id == other:
            return False
        if other == CLIENTS:
            return not self._isolated.get(node_id, True)
        return node_id in self._isolated or other in self._isolated

    def hold(self, node_id: int, other: int, closed: socket.socket) -> None:
        """Close a socket once there is no cut between its two ends."""
        with self._lock:
            if self.is_cut(node_id, other):
                self._kept.append((node_id, other, closed))
                return
        closed.close()

    def close(self) -> None:
        """The end of the cluster."""
        with self._lock:
            kept, self._kept = self._kept, []
        for _, _, held in kept:
            held.close()


class NodeStream(SocketStream):
    """A connection of a node; `other` is the node at the other end, or CLIENTS."""

    def __init__(self, connected: socket.socket, peer: Address, network: NodeNetwork, other: int) -> None:
        super().__init__(connected, peer)
        self._network = network
        self._other = other
        self._waiters: list[asyncio.Future[None]] = []  # for the end of a cut
        self._is_ended = False
        self._is_closed = self._is_dead = False
        network.streams.add(self)

    @property
    def _is_cut(self) -> bool:
        return self._is_dead or self._network.cuts.is_cut(self._network.node_id, self._other)

    def try_read(self, max_bytes: int) -> bytes | None:
        return None if self._is_cut else super().try_read(max_bytes)

    def try_readinto(self, buffer: bytearray | memoryview) -> int | None:
        return None if self._is_cut else super().try_readinto(buffer)

    def try_send(self, buffers: list[memoryview], *, more: bool) -> int:
        if self._is_dead:  # what nobody will ever get needs not be waited for
            return sum(map(len, buffers))
        return 0 if self._is_cut else super().try_send(buffers, more=more)

    def try_send_file(self, part: FileRange) -> int | None:
        if self._is_dead:
            return part.size
        return 0 if self._is_cut else super().try_send_file(part)

    async def readable(self) -> None:
        if not await self._waited():
            await super().readable()

    async def writable(self) -> None:
        if not await self._waited():
            await super().writable()

    async def _waited(self) -> bool:
        """Wait while the connection is cut; whether it was."""
        if not self._is_cut or (self._is_closed and not self._is_dead):
            return False
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter
        return True

    def end(self) -> None:
        if self._is_cut:
            self._is_ended = True
        else:
            super().end()

    def look_again(self) -> None:
        """A cut may have been healed."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self._is_ended and not self._is_closed and not self._is_cut:
            self._is_ended = False
            super().end()

    def close(self, *, reset: bool) -> None:
        if not self._is_closed:
            self._let_go()
            super().close(reset=reset)
            self.look_again()

    def die(self) -> None:
        """The kernel closes it, and those who wait for it never hear of it."""
        if not self._is_closed:
            self._read_waiter = self._write_waiter = None
            self._let_go()
            self._is_dead = True
            super().close(reset=False)

    def _let_go(self) -> None:
        self._is_closed = True
        if self._is_cut:
            self._network.cuts.hold(self._network.node_id, self._other, self._socket.dup())
        self._network.streams.discard(self)


class NodeNetwork(OsNetwork):
    """The network of one life of a node."""

    def __init__(self, workers: Workers, node_id: int, cuts: Cuts, ports: HeldPorts) -> None:
        super().__init__(workers)
        self.node_id = node_id
        self.cuts = cuts
        self.streams: set[NodeStream] = set()
        self._ports = ports
        self._listeners: list[OsListener] = []
        self._dialling: list[asyncio.Future[None]] = []  # during a cut
        self._is_dead = False

    def bound(self, family: socket.AddressFamily, address: tuple[Any, ...]) -> socket.socket:
        if address[1] in self._ports.ports:
            return self._ports.bound(address[1])
        return super().bound(family, address)

    def accepted(self, connected: socket.socket, peer: Address) -> SocketStream:
        return NodeStream(connected, peer, self, CLIENTS)

    def dialled(self, connected: socket.socket, peer: Address) -> SocketStream:
        return NodeStream(connected, peer, self, self.cuts.node_at(peer.port))

    async def listen(self, host: str, port: int, on_connection: Callable[[Connection], None]) -> OsListener:
        listener = await super().listen(host, port, on_connection)
        self._listeners.append(listener)
        return listener

    async def connect(self, host: str, port: int) -> StreamConnection:
        while self.cuts.is_cut(self.node_id, self.cuts.node_at(port)) and not self._is_dead:
            waiter = asyncio.get_running_loop().create_future()
            self._dialling.append(waiter)
            await waiter
        if self._is_dead:
            raise CannotConnect(f"node {self.node_id} was killed")
        return await super().connect(host, port)

    def look_again(self) -> None:
        """A cut may have been healed. Called on the node's loop."""
        waiting, self._dialling = self._dialling, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
        for stream in list(self.streams):
            stream.look_again()

    def die(self) -> None:
        """The process ends: nothing more comes in or goes out. Called on the node's loop."""
        self._is_dead = True
        for listener in self._listeners:
            listener.close()
        for stream in list(self.streams):
            stream.die()


class HeldPorts:
    """The ports of a node through all its lives. A socket that never listens is bound to each, so that no
    other process gets it between two lives; connections are refused then."""

    def __init__(self, host: str, count: int) -> None:
        self._host = host
        self._holders: list[socket.socket] = []
        self.ports = [0] * count
        self.hold()

    def hold(self) -> None:
        """Bind the ports; harmless when repeated."""
        if not self._holders:
            for port in self.ports:
                self._holders.append(self.bound(port))
            self.ports = [int(holder.getsockname()[1]) for holder in self._holders]

    def bound(self, port: int) -> socket.socket:
        """One more socket bound to a port."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            bound.bind((self._host, port))
        except OSError:
            bound.close()
            raise
        return bound

    def close(self) -> None:
        for holder in self._holders:
            holder.close()
        self._holders.clear()
