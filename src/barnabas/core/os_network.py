"""The network of the operating system: TCP over non-blocking sockets on the event loop.

Sockets are used directly, with add_reader and add_writer, since asyncio's transports cannot send file ranges.
A range of an OsDisk file is sent with sendfile if its pages are cached; otherwise sendfile would wait for the
medium, so the range is read by a worker.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

from barnabas.core.connection import StreamConnection
from barnabas.core.disk import FileRange
from barnabas.core.network import (
    Address,
    CannotConnect,
    CannotListen,
    Connection,
    ConnectionLost,
    ConnectionRefused,
)
from barnabas.core.os_file import OsFile
from barnabas.core.workers import Workers

BACKLOG = 1024
ACCEPTS_A_TURN = 64
ACCEPT_PAUSE_SECONDS = 1.0

_MSG_MORE: int = getattr(socket, "MSG_MORE", 0)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NO_SENDFILE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)

_Resolved = tuple[socket.AddressFamily, tuple[Any, ...]]

_log = logging.getLogger(__name__)


class SocketStream:
    """A connected socket."""

    def __init__(self, connected: socket.socket, peer: Address) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer = peer
        self._socket = connected
        self._fd = connected.fileno()
        self._loop = asyncio.get_running_loop()
        self._watches_reads = False
        self._read_waiter: asyncio.Future[None] | None = None
        self._write_waiter: asyncio.Future[None] | None = None

    def try_read(self, max_bytes: int) -> bytes | None:
        try:
            return self._socket.recv(max_bytes)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise self._lost(error) from error

    def try_readinto(self, buffer: bytearray | memoryview) -> int | None:
        try:
            return self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise self._lost(error) from error

    def try_send(self, buffers: list[memoryview], *, more: bool) -> int:
        try:
            return self._socket.sendmsg(buffers, (), _MSG_MORE if more else 0)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise self._lost(error) from error

    def try_send_file(self, part: FileRange) -> int | None:
        file = part.file
        if not isinstance(file, OsFile) or not file.is_cached(part.position, part.size):
            return None
        try:
            sent = os.sendfile(self._fd, file.descriptor(), part.position, part.size)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            if error.errno in _NO_SENDFILE:
                return None
            raise self._lost(error) from error
        return sent or None  # 0 means the end of the file, which the read will report

    async def readable(self) -> None:
        # The reader stays registered until data comes without a waiter: repeated reads register once.
        waiter = self._read_waiter = self._loop.create_future()
        if not self._watches_reads:
            self._watches_reads = True
            self._loop.add_reader(self._fd, self._on_readable)
        try:
            await waiter
        finally:
            self._read_waiter = None

    async def writable(self) -> None:
        waiter = self._write_waiter = self._loop.create_future()
        self._loop.add_writer(self._fd, self._on_writable)
        try:
            await waiter
        finally:
            self._write_waiter = None
            if self._fd >= 0:
                self._loop.remove_writer(self._fd)

    def end(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise self._lost(error) from error

    def close(self, *, reset: bool) -> None:
        if self._fd < 0:
            return
        if self._watches_reads:
            self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._fd = -1
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._socket.close()
        for waiter in (self._read_waiter, self._write_waiter):
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def _on_readable(self) -> None:
        waiter = self._read_waiter
        if waiter is None or waiter.done():
            self._watches_reads = False
            self._loop.remove_reader(self._fd)
        else:
            waiter.set_result(None)

    def _on_writable(self) -> None:
        waiter = self._write_waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _lost(self, error: OSError) -> ConnectionLost:
        return ConnectionLost(f"the connection with {self.peer} is lost: {error.strerror or error}")


class OsListener:
    """A listening socket; `stream` makes a stream of a connection that is accepted."""

    def __init__(
        self,
        listening: socket.socket,
        on_connection: Callable[[Connection], None],
        stream: Callable[[socket.socket, Address], SocketStream] = SocketStream,
    ) -> None:
        self.address = Address(*listening.getsockname()[:2])
        self._socket = listening
        self._on_connection = on_connection
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._watch()

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _watch(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                accepted, address = self._socket.accept()
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._rest(error)
                return
            try:
                stream = self._stream(accepted, Address(*address[:2]))
            except OSError:  # the client closed the connection already
                accepted.close()
                continue
            self._on_connection(StreamConnection(stream))
            if self._socket.fileno() < 0:
                return

    def _rest(self, error: OSError) -> None:
        """Without free descriptors the socket stays readable: pause accepting instead of spinning."""
        _log.warning(
            "cannot accept connections at %s for now: %s; raise the limit on open files (ulimit -n)",
            self.address,
            error.strerror,
        )
        self._loop.remove_reader(self._socket.fileno())
        self._pause = self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._watch)


class OsNetwork:
    """TCP. Names are resolved in a worker, addresses at once. Subclasses override `bound`, `accepted` and
    `dialled` to treat sockets differently."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def bound(self, family: socket.AddressFamily, address: tuple[Any, ...]) -> socket.socket:
        """A socket bound to that address, which does not listen yet."""
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
        return listening

    def accepted(self, connected: socket.socket, peer: Address) -> SocketStream:
        """The stream of an accepted connection."""
        return SocketStream(connected, peer)

    def dialled(self, connected: socket.socket, peer: Address) -> SocketStream:
        """The stream of a connection made by this side."""
        return SocketStream(connected, peer)

    async def listen(self, host: str, port: int, on_connection: Callable[[Connection], None]) -> OsListener:
        try:
            family, address = (await self._resolve(host, port, socket.AI_PASSIVE))[0]
            listening = self.bound(family, address)
        except OSError as error:
            raise _cannot_listen(host, port, error) from error
        try:
            listening.setblocking(False)
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            raise _cannot_listen(host, port, error) from error
        return OsListener(listening, on_connection, self.accepted)

    async def connect(self, host: str, port: int) -> StreamConnection:
        loop = asyncio.get_running_loop()
        reason: OSError | None = None
        refusals = 0
        try:
            addresses = await self._resolve(host, port, 0)
        except OSError as error:
            raise _cannot_connect(host, port, error) from error
        for family, address in addresses:
            try:
                connecting = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                reason = error
                continue
            try:
                connecting.setblocking(False)
                await loop.sock_connect(connecting, address)
                return StreamConnection(self.dialled(connecting, Address(*address[:2])))
            except OSError as error:
                connecting.close()
                reason = error
                refusals += error.errno == errno.ECONNREFUSED
            except BaseException:
                connecting.close()
                raise
        kind = ConnectionRefused if 0 < refusals == len(addresses) else CannotConnect
        raise _cannot_connect(host, port, reason, kind) from reason

    async def _resolve(self, host: str, port: int, flags: int) -> list[_Resolved]:
        def resolve(more_flags: int) -> list[_Resolved]:
            found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags | more_flags)
            return [(family, address) for family, _, _, _, address in found]

        try:
            return resolve(socket.AI_NUMERICHOST)
        except socket.gaierror:
            return await self._workers.run(resolve, 0)


def _cannot_connect(
    host: str, port: int, error: OSError | None, kind: type[CannotConnect] = CannotConnect
) -> CannotConnect:
    if error is None:
        said: object = "the name has no address"
    elif error.errno is not None and error.errno > 0:
        said = os.strerror(error.errno)  # asyncio replaces the message with its own
    else:
        said = error.strerror or error
    return kind(f"cannot connect to {Address(host, port)}: {said}")


def _cannot_listen(host: str, port: int, error: OSError) -> CannotListen:
    advice = "is another node there, or is it no address of this machine?"
    return CannotListen(f"cannot listen at {Address(host, port)}: {error.strerror or error}; {advice}")
