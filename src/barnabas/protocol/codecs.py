"""Encoding and decoding of messages. A codec is compiled from the declaration at first use, and cached.

Guarantees of a decoder: every byte read lies inside the message, a count is never more than the bytes that
are left (so a wrong one costs no memory), and every fault is a MalformedMessage. Records are returned as
views of the input, never copied; large ones are written beside the buffer, not into it (`wire.Beside`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.core.disk import Buffer
from barnabas.protocol.compiler import compile_decoder, compile_encoder
from barnabas.protocol.schema import Message
from barnabas.protocol.wire import Beside, MalformedMessage, parts

M = TypeVar("M", bound=Message)
Decoder = Callable[[Buffer, int, int], tuple[Any, int]]
Encoder = Callable[[Any, bytearray, list[Beside]], None]

_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}


def decoder(cls: type[Message], version: int) -> Decoder:
    """`decoder(view, position, end) -> (message, its end)`; see `decode_with` for the exceptions."""
    found = _decoders.get((cls, version))
    if found is None:
        found = _decoders[cls, version] = compile_decoder(cls, version)
    return found


def encoder(cls: type[Message], version: int) -> Encoder:
    """`encoder(message, out, beside)`: appends to `out`, and adds to `beside` the records sent beside it."""
    found = _encoders.get((cls, version))
    if found is None:
        found = _encoders[cls, version] = compile_encoder(cls, version)
    return found


def decode(cls: type[M], version: int, data: Buffer, position: int = 0) -> M:
    """The message in `data` from `position` to the end."""
    view = data if isinstance(data, memoryview) else memoryview(data)
    message: M = decode_with(decoder(cls, version), view, position)
    return message


def decode_with(codec: Decoder, view: Buffer, position: int, *, exact: bool = True) -> Any:
    """As `decode`, with a known codec; unless `exact`, the message may end before the data.

    Small messages without records decode faster from bytes than from a memoryview.
    """
    end = len(view)
    try:
        message, position = codec(view, position, end)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"no {codec.__name__}: {error}") from None
    if position > end or (exact and position < end):
        raise MalformedMessage(f"no {codec.__name__}: {_length_told(position, end)}")
    return message


def encode(message: Message, version: int) -> bytes:
    """The message as one piece; its records must be in memory."""
    out, beside = bytearray(), list[Beside]()
    encoder(type(message), version)(message, out, beside)
    return b"".join(parts(out, beside)) if beside else bytes(out)  # type: ignore[arg-type]


def _length_told(position: int, end: int) -> str:
    return f"{end - position} bytes too many" if position < end else f"{position - end} bytes are missing"
