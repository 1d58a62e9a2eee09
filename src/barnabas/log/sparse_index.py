"""The two sparse indexes of a segment: offset -> position, and timestamp -> offset.

Both are files of fixed-size ascending entries, with binary search. The file exists, empty, from the start of
its segment. While the segment takes appends, the file is preallocated to its full size with the first entry.
New entries wait in memory until there are enough of them for one write, or until housekeeping writes them,
once a second: other programs may read the files of a running node. The index of an active segment is rebuilt
after a crash, so entries need not be durable before the segment is sealed, which trims the file to them.

Invariants: `count` entries exist, the first `_stored` of them in the file, the rest in `_pending`; both
columns ascend (offsets and positions strictly, timestamps strictly, their offsets weakly).
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.core.disk import Disk, File
from barnabas.core.errors import StorageError
from barnabas.log.checkpoints import write_atomically

PENDING_BYTES = 512
# once the search has narrowed to this many entries, one read fetches them all
SEARCH_BLOCK = 256


class CorruptIndex(StorageError):
    """An invalid index file; it is rebuilt from its segment."""


class SparseIndex:
    """The common part of the two indexes: storage, search, truncation."""

    __slots__ = (
        "_disk",
        "_file",
        "_path",
        "_pending",
        "_preallocated",
        "_stored",
        "base_offset",
        "capacity",
        "last",
        "room",
    )

    ENTRY: ClassVar[struct.Struct]
    # the column that holds an offset relative to the segment's base
    OFFSET_COLUMN: ClassVar[int]

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self._pending = bytearray()
        self._stored = 0
        self._preallocated = False
        self.base_offset = base_offset
        self.last: tuple[int, int] | None = None
        # the number of entries that fit into `segment.index.bytes`, and the number still free
        self.capacity = self.room = max_bytes // self.ENTRY.size

    @property
    def count(self) -> int:
        return self._stored + len(self._pending) // self.ENTRY.size

    async def create(self) -> None:
        """Create an empty file, without keeping it open."""
        file = await self._disk.open(self._path, create=True)
        try:
            if file.size:
                await file.truncate(0)
        finally:
            file.close()

    async def load(self) -> None:
        """Open a sealed index file; CorruptIndex if it is missing or invalid."""
        if await self._disk.size_of(self._path) is None:
            raise CorruptIndex(f"{self._disk.describe(self._path)} is missing")
        self._file = file = await self._disk.open(self._path)
        self._pending.clear()
        self._preallocated = False
        if file.size % self.ENTRY.size:
            raise self._corrupt(f"{file.size} bytes are not a multiple of {self.ENTRY.size}")
        self._stored = file.size // self.ENTRY.size
        self.room = self.capacity - self._stored
        self.last = await self._entry(self._stored - 1) if self._stored else None
        await self._check_last()

    async def _check_last(self) -> None:
        """CorruptIndex if the last entry is impossible."""

    def _corrupt(self, why: str) -> CorruptIndex:
        return CorruptIndex(f"{self._disk.describe(self._path)} is corrupt: {why}")

    def _add(self, first: int, second: int) -> None:
        self._pending += self.ENTRY.pack(first, second)
        self.last = (first, second)
        self.room -= 1

    @property
    def wants_write(self) -> bool:
        """Whether enough entries wait in memory to be worth a system call."""
        return len(self._pending) >= PENDING_BYTES

    async def write(self) -> None:
        """Move the entries in memory to the file, which is preallocated to its full size."""
        file = await self._opened()
        if not self._preallocated:
            await file.truncate(max(self.capacity, self._stored) * self.ENTRY.size)
            self._preallocated = True
        data = bytes(self._pending)
        await file.write_at(self._stored * self.ENTRY.size, data)
        del self._pending[: len(data)]
        self._stored += len(data) // self.ENTRY.size

    async def seal(self) -> None:
        """Write everything and trim the file to it."""
        file = await self._opened()
        if self._pending:
            data = bytes(self._pending)
            await file.write_at(self._stored * self.ENTRY.size, data)
            self._pending.clear()
            self._stored += len(data) // self.ENTRY.size
        if file.size != self._stored * self.ENTRY.size:
            await file.truncate(self._stored * self.ENTRY.size)
        self._preallocated = False

    async def recall(self) -> None:
        """Take all entries back into memory, until there is room on the disk again, and remove the file: one
        with only a part of the entries would be trusted."""
        if self._stored:
            self._pending[:0] = await (await self._opened()).read(0, self._stored * self.ENTRY.size)
        self._stored = 0
        self._preallocated = False
        self.close()
        await self._disk.remove(self._path)

    async def reset(self) -> None:
        """Remove all entries, to be rebuilt."""
        file = await self._opened()
        self.forget()
        if file.size:
            await file.truncate(0)

    def forget(self) -> None:
        """Remove all entries from memory; the file stays as it is."""
        self._pending.clear()
        self._stored = 0
        self._preallocated = False
        self.last = None
        self.room = self.capacity

    async def replace(self) -> None:
        """Replace the file by the entries in memory, whole and durable or not at all."""
        data = bytes(self._pending)
        await write_atomically(self._disk, self._path, data)
        self.close()
        self._pending.clear()
        self._stored = len(data) // self.ENTRY.size

    async def floor(self, value: int, column: int = 0) -> tuple[int, int] | None:
        """The last entry whose `column` is at most `value`."""
        index = await self._floor_index(value, column)
        return None if index < 0 else await self._entry(index)

    async def ceiling(self, value: int, column: int = 0) -> tuple[int, int] | None:
        """The first entry whose `column` is at least `value`."""
        index = await self._floor_index(value - 1, column) + 1
        return None if index >= self.count else await self._entry(index)

    async def _floor_index(self, value: int, column: int) -> int:
        size = self.ENTRY.size
        if self._pending and self.ENTRY.unpack_from(self._pending, 0)[column] <= value:
            return self._stored + _floor_in(self._pending, self.ENTRY, value, column)
        low, high = 0, self._stored
        while high - low > SEARCH_BLOCK:
            middle = (low + high) // 2
            if (await self._entry(middle))[column] <= value:
                low = middle
            else:
                high = middle
        if low == high:
            return low - 1
        block = await (await self._opened()).read(low * size, (high - low) * size)
        return low + _floor_in(block, self.ENTRY, value, column)

    async def _entry(self, index: int) -> tuple[int, int]:
        if index >= self._stored:
            first, second = self.ENTRY.unpack_from(self._pending, (index - self._stored) * self.ENTRY.size)
            return first, second
        data = await (await self._opened()).read(index * self.ENTRY.size, self.ENTRY.size)
        if len(data) != self.ENTRY.size:
            raise self._corrupt(f"entry {index} of {self._stored} is not there")
        first, second = self.ENTRY.unpack(data)
        return first, second

    async def truncate_to(self, offset: int) -> None:
        """Drop the entries at or beyond `offset`."""
        keep = await self._floor_index(offset - self.base_offset - 1, self.OFFSET_COLUMN) + 1
        if keep < self._stored:
            self._stored = keep
            self._pending.clear()
        else:
            del self._pending[(keep - self._stored) * self.ENTRY.size :]
        self.last = await self._entry(keep - 1) if keep else None
        self.room = self.capacity - keep

    async def _opened(self) -> File:
        if self._file is None:
            file = await self._disk.open(self._path, create=True)
            if self._file is None:
                self._file = file
            else:  # another task was faster
                file.close()
        return self._file

    @property
    def is_written(self) -> bool:
        """Whether all entries are in the file."""
        return not self._pending

    async def sync(self) -> None:
        if self._file is not None:
            await self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _floor_in(block: bytes | bytearray, entry: struct.Struct, value: int, column: int) -> int:
    """The index in `block` of the last entry with `column` at most `value`, -1 for none."""
    low, high, size = 0, len(block) // entry.size, entry.size
    while low < high:
        middle = (low + high) // 2
        if entry.unpack_from(block, middle * size)[column] <= value:
            low = middle + 1
        else:
            high = middle
    return low - 1


_OFFSET_ENTRY = struct.Struct(">ii")
_PACK_OFFSET = _OFFSET_ENTRY.pack


class OffsetIndex(SparseIndex):
    """Entries of (offset relative to the base, position): the batch at `position` ends with that offset."""

    __slots__ = ()
    ENTRY = _OFFSET_ENTRY
    OFFSET_COLUMN = 0

    async def _check_last(self) -> None:
        if self.last is not None and self.last[0] <= 0:
            raise self._corrupt(f"the last of {self._stored} entries is {self.last}")

    def add(self, offset: int, position: int) -> None:
        # as `_add`, without the call: every append comes here
        entry = (offset - self.base_offset, position)
        self._pending += _PACK_OFFSET(*entry)
        self.last = entry
        self.room -= 1

    async def position_before(self, offset: int) -> int:
        """The position of a batch at or before `offset`, from which to search."""
        found = await self.floor(offset - self.base_offset)
        return 0 if found is None else found[1]


class TimeIndex(SparseIndex):
    """Entries of (timestamp, relative offset): no record before that offset is later than the timestamp."""

    __slots__ = ()
    ENTRY = struct.Struct(">qi")
    OFFSET_COLUMN = 1

    async def _check_last(self) -> None:
        if self.last is None:
            return
        first = await self._entry(0)
        if self.last[1] < 0 or (self._stored > 1 and self.last[0] <= first[0]):
            raise self._corrupt(f"the last of {self._stored} entries is {self.last}, the first {first}")

    def add(self, timestamp: int, offset: int) -> None:
        """Note that the largest timestamp so far is `timestamp`, at `offset`; a repeated one is left out."""
        if timestamp > (self.last[0] if self.last else -1):
            self._add(timestamp, offset - self.base_offset)
