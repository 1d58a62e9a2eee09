"""A voter of a quorum that does what a test tells it: it listens, writes down what it is asked, and answers.

Apache Kafka's controller takes it for one of its own. Each connection has a thread; requests of APIs that the
quorum does not have end their connection.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from barnabas.broker.quorum.wire import ANSWERING, ASKING
from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.headers import (
    begin_response,
    read_request_header,
    set_length,
    skip_header_tags,
)
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from barnabas.protocol.schema import Message

TIMEOUT_S = 120.0  # a controller has to start, on a machine that may be busy
_REQUESTS = {cls.__key__: cls for cls in ANSWERING}


class Question(NamedTuple):
    """A request as it came: its bytes begin behind the header."""

    message: Any
    version: int
    data: bytes


class ScriptedVoter:
    """`answer` gives the response to each request, None to leave it open; it is called by several threads."""

    def __init__(self, answer: Callable[[Question], Message | None]) -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.port: int = self._listening.getsockname()[1]
        self.asked: queue.SimpleQueue[Question] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def next_of(self, cls: type[Message], where: Callable[[Any], bool] = lambda _: True) -> Question:
        """The next request of that kind; others that come before it are passed over."""
        deadline = time.monotonic() + TIMEOUT_S
        passed: Counter[str] = Counter()
        while True:
            try:
                question = self.asked.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {cls.__name__} in {TIMEOUT_S:.0f} s, but {passed}") from None
            if isinstance(question.message, cls) and where(question.message):
                return question
            passed[type(question.message).__name__] += 1

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._open.append(connection)
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, EOFError):
            while True:
                (size,) = struct.unpack(">i", _received(connection, 4))
                response = self._answered(memoryview(_received(connection, size)))
                if response is None:
                    return
                connection.sendall(response)

    def _answered(self, frame: memoryview) -> bytes | None:
        """The frame to send, empty where nothing is to be said, None where the connection is to end."""
        header = read_request_header(frame)
        version = header.api_version
        cls = _REQUESTS.get(header.api_key)
        if header.api_key == ApiVersionsRequest.__key__:
            return _frame(header.api_key, header.correlation_id, _api_versions(), version, flexible=True)
        if cls is None:
            return None
        flexible = version >= cls.__flexible__
        start = skip_header_tags(frame, header.end) if flexible else header.end
        question = Question(decode(cls, version, frame, start), version, bytes(frame[start:]))
        self.asked.put(question)
        answer = self._answer(question)
        if answer is None:
            return b""
        return _frame(header.api_key, header.correlation_id, answer, version, flexible=flexible)


def _api_versions() -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersion(api_key=api.request.__key__, min_version=api.first, max_version=api.last)
            for api in ASKING.values()
        ],
        supported_features=[SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)],
    )


def _frame(api_key: int, correlation_id: int, message: Message, version: int, *, flexible: bool) -> bytes:
    frame = begin_response(api_key, correlation_id, flexible=flexible)
    frame += encode(message, version)
    set_length(frame)
    return bytes(frame)


def _received(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise EOFError
        received += part
    return received
