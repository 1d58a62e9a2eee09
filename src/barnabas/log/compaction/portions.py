"""Reading a segment's batches for compaction, a portion of bytes at a time.

The file is pinned meanwhile, so that it can be read to its end even if the segment is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, ParamSpec, TypeVar

from barnabas.core.disk import File
from barnabas.core.errors import CorruptMessage, InvalidRecord
from barnabas.log.partition import PartitionLog
from barnabas.log.segment import Segment
from barnabas.records import kernel
from barnabas.records.batch import HEADER_BYTES, BatchHeader

P = ParamSpec("P")
T = TypeVar("T")

# the pure-Python kernel blocks the loop while it processes a portion
_PURE_BYTES = 32 << 10
# how many batches Python code handles, one by one, in a worker thread before the loop runs again
JUDGED_AT_ONCE = 64


class CleanerIo(NamedTuple):
    """The I/O of a compaction: the portion size, the load factor of its map, and its rate.

    `throttle` is called with the size of every portion that is read or written. It may wait, or raise to
    cancel the compaction.
    """

    buffer_bytes: int
    load_factor: float
    throttle: Callable[[int], Awaitable[None]]


class Portions:
    """A walk over a segment's bytes: the next portion begins at `position`, the last ends at `end`."""

    __slots__ = ("_file", "_io", "_log", "_segment", "_want_bytes", "end", "position")

    def __init__(
        self, log: PartitionLog, segment: Segment, file: File, io: CleanerIo, position: int, end: int
    ) -> None:
        self._log = log
        self._segment = segment
        self._file = file
        self._io = io
        self._want_bytes = self._portion_bytes
        self.position = position
        self.end = end

    @property
    def _portion_bytes(self) -> int:
        size = max(self._io.buffer_bytes, HEADER_BYTES)  # an empty read would look like the end
        return size if kernel.PURE_REASON is None else min(size, _PURE_BYTES)

    async def read(self) -> bytes:
        """The next bytes, beginning with a batch; empty at the end."""
        size = min(self._want_bytes, self.end - self.position)
        if size <= 0:
            return b""
        self._log.require_sound()
        await self._io.throttle(size)
        data = await self._file.read(self.position, size)
        if len(data) < size:
            raise self._segment.corrupt(self.position + len(data), "the file ends there")
        return data

    def consume(self, data: bytes, count: int) -> None:
        """Move past the whole batches in `data`, which are `count` bytes. If there is none, the next read is
        larger, to hold the first batch."""
        self.position += count
        self._want_bytes = self._portion_bytes
        if count == 0:
            left = self.end - self.position
            size = BatchHeader.parse(data).size_bytes if len(data) >= HEADER_BYTES else left
            if size > left or len(data) >= left:
                raise self._segment.corrupt(self.position, f"the file ends {left} bytes into a batch")
            self._want_bytes = max(size, HEADER_BYTES)

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a kernel call beside the loop; CorruptSegment if it finds a faulty batch."""
        try:
            if kernel.PURE_REASON is None:
                return await self._log.home.workers.compute(call, *args, **kwargs)
            await asyncio.sleep(0)
            return call(*args, **kwargs)
        except (CorruptMessage, InvalidRecord) as error:
            raise self._segment.corrupt(self.position, f"in what follows, {error}") from error


@asynccontextmanager
async def portions(
    log: PartitionLog, segment: Segment, io: CleanerIo, position: int = 0, end: int | None = None
) -> AsyncIterator[Portions]:
    """Walk over a segment from `position` to `end`, its file pinned."""
    file = await segment.file()
    file.pin()
    try:
        yield Portions(log, segment, file, io, position, segment.size_bytes if end is None else end)
    finally:
        file.unpin()
