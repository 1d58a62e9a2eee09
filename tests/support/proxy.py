"""A proxy between clients and a broker that loses acknowledgements on purpose.

It understands just enough of the protocol to see requests and responses go by: a request is counted by its
API; a response that `loses` chooses is swallowed once it is there, and the connection cut on both sides. The
broker has then done what it was asked, and the client cannot know.

The broker has to advertise the proxy's address, or clients go around it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType

PRODUCE, FETCH = 0, 1


def every(count: int, api_key: int = PRODUCE) -> Callable[[int, int], bool]:
    """Choose each `count`-th response of an API."""
    return lambda key, number: key == api_key and number % count == 0


class Proxy:
    """`with Proxy() as proxy: proxy.leads_to(port)`; clients come to `bootstrap`."""

    def __init__(self, loses: Callable[[int, int], bool] = lambda key, number: False) -> None:
        """`loses(api_key, number)`: whether that API's response of that number (from 1 on) is lost."""
        self.requests: Counter[int] = Counter()
        self.lost = 0
        self._loses = loses
        self._responses: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._broker_port = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"

    def leads_to(self, port: int) -> None:
        """Where connections go from now on."""
        self._broker_port = port

    def __enter__(self) -> Proxy:
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes up who waits for a connection; close does not
        self._listener.close()
        with self._lock:
            for one in self._sockets:
                _shut(one)
        for thread in list(self._threads):
            thread.join(10.0)

    def _spawn(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, name="proxy", daemon=True)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                client.close()
                continue
            for one in (client, broker):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {client, broker}
            asked: dict[int, int] = {}  # correlation id -> API
            self._spawn(self._forward, client, broker, lambda frame, asked=asked: self._asks(frame, asked))
            self._spawn(self._forward, broker, client, lambda frame, asked=asked: self._answers(frame, asked))

    def _asks(self, frame: bytes, asked: dict[int, int]) -> bool:
        api_key, _, correlation_id = struct.unpack_from(">hhi", frame)
        with self._lock:
            self.requests[api_key] += 1
            asked[correlation_id] = api_key
        return True

    def _answers(self, frame: bytes, asked: dict[int, int]) -> bool:
        (correlation_id,) = struct.unpack_from(">i", frame)
        with self._lock:
            api_key = asked.pop(correlation_id)
            self._responses[api_key] += 1
            loses = self._loses(api_key, self._responses[api_key])
            self.lost += loses
        return not loses

    def _forward(self, source: socket.socket, sink: socket.socket, passes: Callable[[bytes], bool]) -> None:
        with contextlib.suppress(OSError):
            while (frame := _read_frame(source)) is not None and passes(frame):
                sink.sendall(struct.pack(">i", len(frame)) + frame)
        for one in (source, sink):
            _shut(one)
        with self._lock:
            if source in self._sockets:
                self._sockets.discard(source)
        source.close()


def _read_frame(source: socket.socket) -> bytes | None:
    header = _read(source, 4)
    return None if header is None else _read(source, struct.unpack(">i", header)[0])


def _read(source: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        part = source.recv(min(size - len(received), 1 << 20))
        if not part:
            return None
        received += part
    return bytes(received)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
