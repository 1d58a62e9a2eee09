"""The headers of requests and responses.

A frame is a length (int32) and that many bytes. A request begins with its API, version, correlation id and
client id; a response with the correlation id. In flexible versions, tagged fields follow (none are defined,
all are skipped). The one exception is the response to ApiVersions, which never has them, since a client does
not know the broker's versions yet.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.protocol.wire import MalformedMessage, read_varint, skip_tags

API_VERSIONS = 18
LENGTH_BYTES = 4

_REQUEST = struct.Struct(">hhih")
_RESPONSE = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    end: int  # its end, without the tagged fields of a flexible version


def read_request_header(frame: memoryview) -> RequestHeader:
    """The header of a request, without its length; `skip_header_tags` follows for flexible versions."""
    try:
        api_key, api_version, correlation_id, size = _REQUEST.unpack_from(frame)
        if size < 0:
            return RequestHeader(api_key, api_version, correlation_id, None, _REQUEST.size)
        end = _REQUEST.size + size
        if end > len(frame):
            raise MalformedMessage(f"a client's name of {size} bytes in a request of {len(frame)}")
        name = str(frame[_REQUEST.size : end], "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedMessage(f"no header of a request: {error}") from None
    return RequestHeader(api_key, api_version, correlation_id, name, end)


def skip_header_tags(frame: memoryview, position: int) -> int:
    """The position of the body of a flexible request or response."""
    try:
        count = frame[position]
        if count == 0:
            return position + 1
        count, position = read_varint(frame, position)
        position = skip_tags(frame, position, count)
    except IndexError:
        raise MalformedMessage("a header is cut short") from None
    if position > len(frame):
        raise MalformedMessage("a header's tagged fields reach beyond its frame")
    return position


def begin_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, *, flexible: bool
) -> bytearray:
    """A frame with a request's header; `set_length` fills in the length later."""
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    frame = bytearray(LENGTH_BYTES)
    frame += _REQUEST.pack(api_key, version, correlation_id, size)
    frame += name
    if flexible:
        frame.append(0)
    return frame


def begin_response(api_key: int, correlation_id: int, *, flexible: bool) -> bytearray:
    """A frame with a response's header; `set_length` fills in the length later."""
    frame = bytearray(_RESPONSE.pack(0, correlation_id))
    if flexible and api_key != API_VERSIONS:
        frame.append(0)
    return frame


def read_response_header(frame: memoryview, api_key: int, *, flexible: bool) -> tuple[int, int]:
    """The correlation id of a response, and the position of its body."""
    try:
        (correlation_id,) = _LENGTH.unpack_from(frame)
    except struct.error as error:
        raise MalformedMessage(f"no header of a response: {error}") from None
    if flexible and api_key != API_VERSIONS:
        return correlation_id, skip_header_tags(frame, LENGTH_BYTES)
    return correlation_id, LENGTH_BYTES


def set_length(frame: bytearray, bytes_beside: int = 0) -> None:
    """Fill in the length of a frame, including the bytes that are sent beside its buffer."""
    _LENGTH.pack_into(frame, 0, len(frame) - LENGTH_BYTES + bytes_beside)
