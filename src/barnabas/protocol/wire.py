"""The elements of a message: numbers, lengths, tagged fields, and records that are not copied.

Generated codecs call these functions; simpler elements are inlined.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.disk import Buffer, FileRange
from barnabas.core.errors import BarnabasError, wire_error

COPY_LIMIT_BYTES = 4096
# Kafka's limit for texts, in all versions: a longer one in the metadata would keep it from starting
MAX_TEXT_BYTES = 2**15 - 1


class MalformedMessage(BarnabasError):
    """Bytes that are not a message of the expected type and version."""

    wire = wire_error("INVALID_REQUEST")


class Beside(NamedTuple):
    """Records at `position` of an encoded message that were not copied into its buffer."""

    position: int
    records: Buffer | FileRange


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of up to 32 bits, of more than one byte."""
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                raise MalformedMessage("a number of more than 32 bits")
            return value, position
        shift += 7
        if shift > 28:
            raise MalformedMessage("a number of more than 32 bits")


def read_text_size(view: memoryview, position: int) -> tuple[int, int]:
    """The length of a text plus one, as a varint of more than one byte."""
    size, position = read_varint(view, position)
    if size > MAX_TEXT_BYTES + 1:
        raise MalformedMessage(f"a text of {size - 1} bytes, where {MAX_TEXT_BYTES} are allowed")
    return size, position


def write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_tags(out: bytearray, tags: list[tuple[int, bytearray]]) -> None:
    write_varint(out, len(tags))
    for tag, value in tags:
        write_varint(out, tag)
        write_varint(out, len(value))
        out += value


def skip_tags(view: memoryview, position: int, count: int) -> int:
    for _ in range(count):
        _, position = read_varint(view, position)
        size, position = read_varint(view, position)
        position += size
    return position


def bad_length(name: str, size: int, left: int) -> MalformedMessage:
    if size < 0:
        return MalformedMessage(f"{name} must not be null (length {size})")
    return MalformedMessage(f"{name} claims a length of {size} where {left} bytes are left")


def bad_tag(tag: int) -> MalformedMessage:
    return MalformedMessage(f"the tagged field {tag} has another length than it claims")


def size_of(records: Buffer | FileRange) -> int:
    return records.size if isinstance(records, FileRange) else len(records)


def put_records(records: Buffer | FileRange, out: bytearray, beside: list[Beside]) -> None:
    if isinstance(records, FileRange) or len(records) > COPY_LIMIT_BYTES:
        beside.append(Beside(len(out), records))
    else:
        out += records


def parts(out: bytearray, beside: list[Beside]) -> list[Buffer | FileRange]:
    """An encoded message as parts for a connection: the buffer, split where records are beside it."""
    if not beside:
        return [out]
    view, done, pieces = memoryview(out), 0, list[Buffer | FileRange]()
    for position, records in beside:
        if position > done:
            pieces.append(view[done:position])
        pieces.append(records)
        done = position
    if done < len(out):
        pieces.append(view[done:])
    return pieces
