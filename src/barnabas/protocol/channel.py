"""The client side of a connection, without I/O: correlation ids, matching of responses, choice of versions.

A peer answers requests in order, so a response must have the correlation id of the oldest open request. Any
other one is OutOfStep, and the connection must be closed. A request without a response (acks=0) gets an id
like the others and is then forgotten.

Nothing is known about a peer until it has answered ApiVersions. A peer that does not support the version of
that request answers in version 0, whatever was requested; `retry_version` gives the version for the next
attempt.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.core.network import Part
from barnabas.protocol.codecs import decode, encoder
from barnabas.protocol.headers import API_VERSIONS, begin_request, read_response_header, set_length
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.schema import EVERY_VERSION, Message
from barnabas.protocol.wire import Beside, MalformedMessage, parts, size_of

MAX_CORRELATION_ID = 0x7FFFFFFF

_ERROR_CODE = struct.Struct(">h")
_UNSUPPORTED_VERSION = wire_error("UNSUPPORTED_VERSION").code


class OutOfStep(BarnabasError):
    """A response to no request, or not to the oldest one."""

    wire = wire_error("NETWORK_EXCEPTION")


class NotSpoken(BarnabasError):
    """The peer does not support an API, or no common version of it."""

    wire = wire_error("UNSUPPORTED_VERSION")


class Pending(NamedTuple):
    """A request in flight, with what is needed to read its response."""

    correlation_id: int
    api_key: int
    version: int
    is_flexible: bool
    response: type[Message]


class Versions:
    """The versions of every API that a peer supports."""

    def __init__(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        self.ranges = dict(ranges)

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> Versions:
        return cls({api.api_key: (api.min_version, api.max_version) for api in response.api_keys})

    def choose(self, request: type[Message], at_most: int = EVERY_VERSION) -> int:
        """The newest version of a request that both sides support, up to `at_most`."""
        name = request.__name__.removesuffix("Request")
        if request.__key__ not in self.ranges:
            raise NotSpoken(f"the broker has no {name}; it is too old, or not meant for this")
        first, last = self.ranges[request.__key__]
        own_first, own_last = request.__versions__
        version = min(last, own_last, at_most)
        if version < max(first, own_first):
            raise NotSpoken(
                f"no common version of {name}: the broker speaks {first} to {last}, "
                f"{own_first} to {min(own_last, at_most)} can be used here"
            )
        return version


def retry_version(response: ApiVersionsResponse, asked: int) -> int | None:
    """The version in which to repeat ApiVersions; None if that would not help, or is not needed."""
    if response.error_code != _UNSUPPORTED_VERSION or asked == 0:
        return None
    first, last = Versions.of(response).ranges.get(API_VERSIONS, (0, 0))
    version = min(last, asked - 1, ApiVersionsRequest.__versions__[1])
    return version if version >= first else 0


class RequestChannel:
    """One connection's requests and responses."""

    def __init__(self, client_id: str | None, *, first_correlation_id: int = 0) -> None:
        self._client_id = client_id
        self._next_id = first_correlation_id
        self._open: deque[Pending] = deque()

    def __len__(self) -> int:
        """The number of responses that are awaited."""
        return len(self._open)

    def send(
        self, request: Message, version: int, response: type[Message] | None
    ) -> tuple[list[Part], Pending | None]:
        """The bytes of a request; no Pending if `response` is None, since none will come."""
        cls = type(request)
        is_flexible = version >= cls.__flexible__
        correlation_id = self._next_id
        frame = begin_request(cls.__key__, version, correlation_id, self._client_id, flexible=is_flexible)
        beside: list[Beside] = []
        encoder(cls, version)(request, frame, beside)
        set_length(frame, sum(size_of(each.records) for each in beside))
        self._next_id = 0 if correlation_id == MAX_CORRELATION_ID else correlation_id + 1
        pending = None
        if response is not None:
            pending = Pending(correlation_id, cls.__key__, version, is_flexible, response)
            self._open.append(pending)
        return parts(frame, beside), pending

    def received(self, frames: Iterable[memoryview]) -> Iterator[tuple[Pending, Message]]:
        """Decode each frame as the response to the oldest open request."""
        for frame in frames:
            if not self._open:
                raise OutOfStep(f"a response of {len(frame)} bytes to nothing that was asked")
            pending = self._open.popleft()
            correlation_id, body = read_response_header(frame, pending.api_key, flexible=pending.is_flexible)
            if correlation_id != pending.correlation_id:
                raise OutOfStep(
                    f"a response to request {correlation_id}, where one to {pending.correlation_id} was due"
                )
            yield pending, decode(pending.response, _version_of(pending, frame, body), frame, body)


def _version_of(pending: Pending, frame: memoryview, body: int) -> int:
    """The version of a response: the request's, except that ApiVersions may be refused in version 0."""
    if pending.api_key != API_VERSIONS:
        return pending.version
    if len(frame) < body + _ERROR_CODE.size:
        raise MalformedMessage("a response to ApiVersions that is cut short")
    (code,) = _ERROR_CODE.unpack_from(frame, body)
    return 0 if code == _UNSUPPORTED_VERSION else pending.version


__all__ = ["NotSpoken", "OutOfStep", "Pending", "RequestChannel", "Versions", "retry_version"]
