"""A client that can misbehave: a blocking socket, frames made by hand or from messages, and what comes back.

It checks nothing by itself but the lengths of frames, and knows nothing of brokers: correlation ids, orders
and versions are for the tests to choose and to judge.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.schema import NO_UUID, Message
from barnabas.records.builder import build_batch
from barnabas.records.record import Record

R = TypeVar("R", bound=Message)

TIMEOUT_S = 60.0  # nothing takes as long, even on a busy machine
API_VERSIONS = 18
SOFTWARE_FROM = 3


def frame(payload: bytes) -> bytes:
    """A payload with its length before it."""
    return struct.pack(">i", len(payload)) + payload


def payload(
    request: Message,
    version: int,
    correlation_id: int = 1,
    client_id: str | None = "raw",
    tags: bytes = b"\0",
) -> bytes:
    """A request as it stands in a frame: header and body."""
    return header(type(request), version, correlation_id, client_id, tags) + encode(request, version)


def header(
    cls: type[Message], version: int, correlation_id: int, client_id: str | None, tags: bytes = b"\0"
) -> bytes:
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    start = struct.pack(">hhih", cls.__key__, version, correlation_id, size) + name
    return start + tags if version >= cls.__flexible__ else start


class RawClient:
    """One connection to a broker on this machine."""

    def __init__(
        self,
        port: int,
        *,
        host: str = "127.0.0.1",
        source: str = "127.0.0.1",
        receive_bytes: int | None = None,
    ) -> None:
        """From the address `source`; `receive_bytes`: how much the system holds for one who does not read."""
        self._socket = socket.socket()
        self._socket.settimeout(TIMEOUT_S)
        self._socket.bind((source, 0))
        self.address = "{}:{}".format(*self._socket.getsockname())  # this end, as the broker's log names it
        if receive_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._was_reset = False
        try:
            self._socket.connect((host, port))
        except ConnectionResetError:  # a broker that turns it away may be quicker than connect itself
            self._was_reset = True
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """Go away without a word: what is on the way is lost."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def end(self) -> None:
        """Send nothing more, but go on reading."""
        self._socket.shutdown(socket.SHUT_WR)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_what_fits(self, data: bytes, patience_s: float = 0.3) -> int:
        """How much of it is taken before nothing has been for a while."""
        self._socket.settimeout(patience_s)
        sent = 0
        try:
            while sent < len(data):
                sent += self._socket.send(data[sent : sent + 65536])
        except TimeoutError:
            pass
        finally:
            self._socket.settimeout(TIMEOUT_S)
        return sent

    def send(self, request: Message, version: int, correlation_id: int = 1) -> None:
        self.send_bytes(frame(payload(request, version, correlation_id)))

    def receive(self) -> bytes:
        """The next frame, without its length; EOFError where the connection ends instead."""
        (size,) = struct.unpack(">i", self.receive_bytes(4))
        return self.receive_bytes(size)

    def receive_bytes(self, size: int) -> bytes:
        parts = []
        while size:
            try:
                part = self._socket.recv(min(size, 1 << 20))
            except ConnectionResetError:
                part = b""
            if not part:
                raise EOFError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def receive_response(self, cls: type[R], version: int, *, flexible: bool) -> tuple[int, R]:
        """The next response, and the correlation id that it bears."""
        got = self.receive()
        (correlation_id,) = struct.unpack_from(">i", got)
        at = 4
        if flexible and cls.__key__ != API_VERSIONS:
            assert got[4] == 0, "a response header with tagged fields that nobody knows"
            at = 5
        return correlation_id, decode(cls, version, got, at)

    def ask(self, request: Message, version: int, response: type[R], correlation_id: int = 1) -> R:
        """Send a request and read its response, which must be to that very request."""
        self.send(request, version, correlation_id)
        flexible = version >= type(request).__flexible__
        got_id, answer = self.receive_response(response, version, flexible=flexible)
        assert got_id == correlation_id
        return answer

    def is_closed(self) -> bool:
        """Wait until the broker closes the connection; False if it sends something instead."""
        try:
            return self._was_reset or self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def is_silent(self, seconds: float = 0.2) -> bool:
        """Whether nothing comes for that long, and the connection stays."""
        self._socket.settimeout(seconds)
        try:
            self._socket.recv(1)
        except TimeoutError:
            return True
        except ConnectionResetError:
            return False
        finally:
            self._socket.settimeout(TIMEOUT_S)
        return False


def produce_request(
    topic: str, values: list[bytes], *, acks: int = 1, partition: int = 0, topic_id: bytes = NO_UUID
) -> ProduceRequest:
    """Values for one partition, in one batch."""
    records = [Record(i, 1_700_000_000_000 + i, None, value, ()) for i, value in enumerate(values)]
    data = PartitionProduceData(index=partition, records=memoryview(build_batch(records)))
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])],
    )


def fetch_request(
    topic: str,
    *,
    offset: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 30,
    partition: int = 0,
) -> FetchRequest:
    """One partition from an offset on, without a session."""
    ask = FetchPartition(
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[ask])],
        forgotten_topics_data=[],
        rack_id="",
    )


def metadata_request(*topics: str) -> MetadataRequest:
    """Those topics, created where they do not exist."""
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=True
    )


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 2 * TIMEOUT_S) -> None:
    """Poll until it holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(0.005)
