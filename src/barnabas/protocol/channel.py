"""The side that asks, without I/O: requests get numbers, responses find them, versions are agreed upon.

A peer answers in the order in which it was asked, so a response that bears any number but that of the oldest
open request means that the stream has lost its meaning: OutOfStep, and the connection must go. A request that
wants no answer (acks=0) is numbered like the others and then forgotten.

Nothing is known about a peer until it has answered ApiVersions. One that does not speak the version in which
it is asked says so in version 0, whatever was asked; `retry_version` tells how to ask it again.
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
    """A response that answers nothing that was asked, or not what it should answer."""

    wire = wire_error("NETWORK_EXCEPTION")


class NotSpoken(BarnabasError):
    """The peer has not got an API, or no version of it that is known here."""

    wire = wire_error("UNSUPPORTED_VERSION")


class Pending(NamedTuple):
    """A request on its way, and how its response is to be read."""

    correlation_id: int
    api_key: int
    version: int
    is_flexible: bool
    response: type[Message]


class Versions:
    """What a peer speaks: the range of versions of every API it has."""

    def __init__(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        self.ranges = dict(ranges)

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> Versions:
        return cls({api.api_key: (api.min_version, api.max_version) for api in response.api_keys})

    def choose(self, request: type[Message], at_most: int = EVERY_VERSION) -> int:
        """The newest version of a request that both sides speak, up to `at_most`."""
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
    """In which version to ask for ApiVersions again; None where that would not help, or is not needed."""
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
        """How many responses are awaited."""
        return len(self._open)

    def send(
        self, request: Message, version: int, response: type[Message] | None
    ) -> tuple[list[Part], Pending | None]:
        """What to write for a request; no Pending where `response` is None and none will come."""
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
        """Each frame as the response to the oldest request that is still open."""
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
    """The version that a response has: the one that was asked for, but for a refusal of ApiVersions."""
    if pending.api_key != API_VERSIONS:
        return pending.version
    if len(frame) < body + _ERROR_CODE.size:
        raise MalformedMessage("a response to ApiVersions that is cut short")
    (code,) = _ERROR_CODE.unpack_from(frame, body)
    return 0 if code == _UNSUPPORTED_VERSION else pending.version


__all__ = ["NotSpoken", "OutOfStep", "Pending", "RequestChannel", "Versions", "retry_version"]
