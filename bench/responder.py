"""A broker that does nothing, as quickly as it can: what is measured against it is the client's own floor.

    python -m bench.responder PORT

It knows one partition 0 in whatever topic it is asked for, speaks just enough of one version an API for
librdkafka to produce and fetch, keeps the last batch alone, and gives it to whoever waits for it. The few
fields of a request that matter are read where they stand, and responses are prebuilt but for what changes.
Lengths and counts are believed: it is for a client that means well, on the loopback interface.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import sys
from typing import NamedTuple

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
VERSIONS = {PRODUCE: 3, FETCH: 4, LIST_OFFSETS: 1, METADATA: 1, API_VERSIONS: 0}
UNSUPPORTED_VERSION = 35
RECEIVE_BYTES = 1 << 20
LAST_OFFSET_DELTA = struct.Struct(">23xi")
int16, int32, int64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")


class Waiting(NamedTuple):
    """A fetch that is answered by the next produce."""

    connection: socket.socket
    correlation: bytes
    name: bytes


class Responder:
    """All state: the log's end, the last batch, and who waits."""

    def __init__(self, port: int) -> None:
        self._broker = int32.pack(1) + string(b"127.0.0.1") + int32.pack(port) + int16.pack(-1)
        self._end = 0
        self._batch = b""
        self._waiting: list[Waiting] = []

    def gone(self, connection: socket.socket) -> None:
        """Nobody waits on a connection that was closed."""
        self._waiting = [each for each in self._waiting if each.connection is not connection]

    def answer(self, connection: socket.socket, frame: memoryview) -> None:
        """One request; a fetch of what is not there yet waits, without limit."""
        api, version = struct.unpack_from(">hh", frame)
        correlation = bytes(frame[4:8])
        body = frame[10 + max(0, int16.unpack_from(frame, 8)[0]) :]
        if api == PRODUCE:
            send(connection, correlation, self._produce(body))
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                send(each.connection, each.correlation, self._records(each.name))
        elif api == FETCH:
            self._fetch(connection, correlation, body)
        elif api == METADATA:
            send(connection, correlation, self._metadata(body))
        elif api == LIST_OFFSETS:
            send(connection, correlation, self._list_offsets(body))
        else:
            send(connection, correlation, api_versions(0 if version == 0 else UNSUPPORTED_VERSION))

    def _produce(self, body: memoryview) -> bytes:
        # no transactional id, acks, timeout, one topic of one partition
        name, at = string_at(body, 2 + 2 + 4 + 4)
        (size,) = int32.unpack_from(body, at + 8)
        batch = bytearray(body[at + 12 : at + 12 + size])
        int64.pack_into(batch, 0, self._end)
        base, self._batch = self._end, bytes(batch)
        self._end += LAST_OFFSET_DELTA.unpack_from(batch)[0] + 1
        return ONE + string(name) + ONE + struct.pack(">ihqqi", 0, 0, base, -1, 0)

    def _fetch(self, connection: socket.socket, correlation: bytes, body: memoryview) -> None:
        # replica, wait, least, most, isolation, one topic of one partition
        name, at = string_at(body, 4 + 4 + 4 + 4 + 1 + 4)
        (offset,) = int64.unpack_from(body, at + 8)
        if offset < self._end:
            send(connection, correlation, self._records(name))
        else:
            self._waiting.append(Waiting(connection, correlation, name))

    def _records(self, name: bytes) -> bytes:
        partition = struct.pack(">ihqqii", 0, 0, self._end, self._end, -1, len(self._batch))
        return int32.pack(0) + ONE + string(name) + ONE + partition + self._batch

    def _metadata(self, body: memoryview) -> bytes:
        (count,) = int32.unpack_from(body)
        names, at = [], 4
        for _ in range(max(0, count)):
            name, at = string_at(body, at)
            names.append(name)
        partition = struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
        topics = [int16.pack(0) + string(name) + b"\0" + ONE + partition for name in names]
        return ONE + self._broker + int32.pack(1) + int32.pack(len(topics)) + b"".join(topics)

    def _list_offsets(self, body: memoryview) -> bytes:
        # replica, one topic of one partition: whether its start or its end is asked for
        name, at = string_at(body, 4 + 4)
        (timestamp,) = int64.unpack_from(body, at + 8)
        offset = self._end if timestamp == -1 else 0
        return ONE + string(name) + ONE + struct.pack(">ihqq", 0, 0, -1, offset)


ONE = int32.pack(1)


def api_versions(error: int) -> bytes:
    """The format of version 0, which is also how a newer one is refused."""
    ranges = b"".join(struct.pack(">hhh", api, version, version) for api, version in VERSIONS.items())
    return struct.pack(">hi", error, len(VERSIONS)) + ranges


def string(text: bytes) -> bytes:
    return int16.pack(len(text)) + text


def string_at(body: memoryview, at: int) -> tuple[bytes, int]:
    """The string that stands there, and where it ends."""
    (size,) = int16.unpack_from(body, at)
    return bytes(body[at + 2 : at + 2 + size]), at + 2 + size


def send(connection: socket.socket, correlation: bytes, body: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # whoever has gone is found out when nothing can be received
        connection.sendall(int32.pack(4 + len(body)) + correlation + body)


def receive(responder: Responder, connection: socket.socket, buffered: bytearray) -> bool:
    """Answer all whole frames that have come; False when the client has gone."""
    try:
        data = connection.recv(RECEIVE_BYTES)
    except ConnectionError:
        return False
    buffered += data
    at = 0
    with memoryview(bytes(buffered)) as view:
        while len(view) - at >= 4 and len(view) - at - 4 >= (size := int32.unpack_from(view, at)[0]):
            responder.answer(connection, view[at + 4 : at + 4 + size])
            at += 4 + size
    del buffered[:at]
    return bool(data)


def serve(port: int) -> None:
    """Until the process is ended from outside."""
    responder = Responder(port)
    listener = socket.create_server(("127.0.0.1", port))
    connections: dict[int, tuple[socket.socket, bytearray]] = {}
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == listener.fileno():
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[connection.fileno()] = connection, bytearray()
                poll.register(connection, select.EPOLLIN)
            elif not receive(responder, *connections[descriptor]):
                poll.unregister(descriptor)
                connection, _ = connections.pop(descriptor)
                responder.gone(connection)
                connection.close()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
