"""The few requests that are sent by hand, where a client library would be most of what is measured."""

from __future__ import annotations

import socket
import struct

API_VERSIONS, FETCH, PRODUCE = 18, 1, 0
DEADLINE_S = 30.0


class Wire:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def api_versions(self) -> None:
        """The shortest question there is (version 0)."""
        self._call(API_VERSIONS, 0, b"")

    def fetch(self, topic: bytes, offset: int, max_bytes: int) -> int:
        """Bytes of records of partition 0 from an offset that exists (version 4)."""
        name = struct.pack(f">h{len(topic)}s", len(topic), topic)
        limits = struct.pack(">iiiib", -1, 500, 1, max_bytes, 0)
        partition = struct.pack(">iiqi", 1, 0, offset, max_bytes)
        response = self._call(FETCH, 4, limits + struct.pack(">i", 1) + name + partition)
        # throttle time, topics, the name, partitions, index
        error, _, _, aborted = struct.unpack_from(">hqqi", response, 4 + 4 + len(name) + 4 + 4)
        if error or aborted > 0:
            raise ConnectionError(f"fetch from {offset} of {topic!r} failed with error {error}")
        return len(response) - (4 + 4 + len(name) + 4 + 4 + 22 + 4)

    def produce(self, topic: bytes, batch: bytes | bytearray) -> None:
        """One batch for partition 0, acknowledged by the leader (version 3)."""
        name = struct.pack(f">h{len(topic)}s", len(topic), topic)
        asked = struct.pack(">hhii", -1, 1, 30_000, 1) + name + struct.pack(">iii", 1, 0, len(batch))
        response = self._call(PRODUCE, 3, asked + batch)
        # topics, the name, partitions, index
        (error,) = struct.unpack_from(">h", response, 4 + len(name) + 4 + 4)
        if error:
            raise ConnectionError(f"produce to {topic!r} failed with error {error}")

    def _call(self, api: int, version: int, body: bytes) -> bytes:
        """One round trip; the response without its header."""
        frame = struct.pack(">hhih", api, version, 1, -1) + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)[4:]

    def _receive(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError("closed in the middle of a response")
            view = view[count:]
        return bytes(data)
