"""The frame that schema registries put before a value: a zero byte, and the schema id as four bytes
big-endian.

With Protobuf the path of the message inside its file follows, as zigzag varints: the number of indexes, then
the indexes. The first message of a file, by far the most common, is a single zero. A file's third message,
and inside it the second one, is 2, 2, 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Framed = bool | Literal["auto"]

FRAME_BYTES = 5
_MAGIC = 0
_MAX_DEPTH = 100  # nested messages; a larger number means that it is no frame


class BadValue(ValueError):
    """Bytes that are not valid, and why."""


class FrameError(BadValue):
    """A value does not begin with a registry's frame."""


class Frame(NamedTuple):
    """A value without its frame; the id is None if it has no frame."""

    schema_id: int | None
    body: bytes


def looks_framed(value: bytes) -> bool:
    """Whether it may be framed: Avro may begin with a zero byte by itself, JSON and Protobuf never do."""
    return len(value) >= FRAME_BYTES and value[0] == _MAGIC


def unframe(value: bytes) -> Frame:
    """The schema id and the rest; FrameError if there is no frame."""
    if not looks_framed(value):
        raise FrameError("no registry frame: it begins with a zero byte and four bytes of schema id")
    return Frame(int.from_bytes(value[1:FRAME_BYTES], "big", signed=True), value[FRAME_BYTES:])


def frame(schema_id: int) -> bytes:
    """The frame of that schema id."""
    return bytes((_MAGIC,)) + schema_id.to_bytes(4, "big", signed=True)


def write_indexes(indexes: Sequence[int]) -> bytes:
    """The path of a message in its file."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def read_indexes(body: bytes) -> tuple[tuple[int, ...], bytes]:
    """The path of a message in its file, and the message."""
    count, position = _read_zigzag(body, 0)
    if count == 0:
        return (0,), body[position:]
    if not 0 < count <= _MAX_DEPTH:
        raise FrameError(f"{count} message indexes after the schema id")
    indexes = []
    for _ in range(count):
        index, position = _read_zigzag(body, position)
        indexes.append(index)
    return tuple(indexes), body[position:]


def _zigzag(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 31)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    rest = shift = 0
    while shift < 35:
        if position >= len(data):
            raise FrameError("the message indexes after the schema id are cut short")
        byte = data[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (rest >> 1) ^ -(rest & 1), position
        shift += 7
    raise FrameError("a message index after the schema id is too long")
