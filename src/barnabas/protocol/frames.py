"""Splits a stream of bytes into frames, without I/O: `buffer` gives the target of the next read.

Small frames arrive together in a scratch buffer that all connections of a loop share, and are copied out of
it at once; so an idle connection uses no memory. An incomplete frame gets a buffer of its own, into which the
rest is received directly; a large one grows with the received bytes, so that a large length alone costs
little. Each frame is returned as a buffer that nothing else writes to, since a leader numbers batches in
place. If the stream is broken, the frames before that are returned first; then `buffer` raises BadFrame.
"""

from __future__ import annotations

import struct

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.protocol.headers import LENGTH_BYTES

SCRATCH_BYTES = 256 * 1024
TRUSTED_BYTES = 4 * 1024 * 1024  # a frame up to this size gets its memory at once

_LENGTH = struct.Struct(">i")


class BadFrame(BarnabasError):
    """The bytes are not a stream of frames, or a frame is too large."""

    wire = wire_error("INVALID_REQUEST")


class FrameReader:
    """One direction of one connection. `scratch` may be shared by readers that use it one after another."""

    __slots__ = ("_broken", "_filled", "_frame", "_head", "_scratch", "_size", "max_frame_bytes")

    def __init__(self, scratch: memoryview, max_frame_bytes: int) -> None:
        self._scratch = scratch
        self.max_frame_bytes = max_frame_bytes  # may change between frames
        self._head = b""  # the beginning of a length
        self._frame: memoryview | None = None  # an incomplete frame, whose final size is `_size`
        self._size = 0
        self._filled = 0
        self._broken: BadFrame | None = None

    @property
    def is_between_frames(self) -> bool:
        """Whether the stream may end here."""
        return self._frame is None and not self._head

    @property
    def awaited_bytes(self) -> int:
        """The size of the incomplete frame; 0 between frames."""
        return 0 if self._frame is None else self._size

    def buffer(self) -> memoryview:
        """The buffer for the next bytes; `received` must be called before anything else uses the scratch."""
        if self._broken is not None:
            raise self._broken
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._scratch

    def received(self, count: int) -> list[memoryview]:
        """The complete frames, after `count` more bytes were received."""
        if self._frame is None:
            return self._cut(count)
        self._filled += count
        if self._filled < len(self._frame):
            return []
        if self._filled < self._size:
            self._begin(self._frame, self._size)
            return []
        frame, self._frame = self._frame, None
        return [frame]

    def _begin(self, received: memoryview, size: int) -> None:
        """Allocate the buffer of a frame and copy the bytes received so far into it."""
        filled = len(received)
        frame = memoryview(bytearray(min(size, max(TRUSTED_BYTES, 2 * filled))))
        frame[:filled] = received
        self._frame, self._filled, self._size = frame, filled, size

    def _cut(self, count: int) -> list[memoryview]:
        data = self._scratch[:count]
        if self._head:
            data = memoryview(self._head + data)
            self._head = b""
            count = len(data)
        frames: list[memoryview] = []
        start = 0
        while count - start >= LENGTH_BYTES:
            (size,) = _LENGTH.unpack_from(data, start)
            if not 0 < size <= self.max_frame_bytes:
                self._broken = BadFrame(self._explain(size, bytes(data[start : start + 8])))
                return frames
            start += LENGTH_BYTES
            end = start + size
            if end > count:
                self._begin(data[start:], size)
                return frames
            frames.append(memoryview(bytearray(data[start:end])))
            start = end
        self._head = bytes(data[start:])
        return frames

    def _explain(self, size: int, first: bytes) -> str:
        if first[:2] == b"\x16\x03":
            return "a TLS handshake on a listener without TLS; use a plain-text client, or another listener"
        if first[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI"):
            return "an HTTP request on a listener that speaks Kafka's protocol"
        if first[:2] == b"\x15\x03":
            return "an alert of TLS: that port wants TLS, and this is plain text; use another port"
        if first[:4] == b"HTTP":
            return "an HTTP response: what listens there is no Kafka; use another port"
        if size > self.max_frame_bytes:
            return f"a frame of {size} bytes, more than the {self.max_frame_bytes} that are allowed"
        return f"a frame of {size} bytes"
