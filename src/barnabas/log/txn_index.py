"""The aborted transactions whose markers are in one segment: the `.txnindex` file.

A read_committed reader gets, with the batches, the aborted transactions that overlap them. Entries are
appended in the order of the abort markers, so that their last offsets ascend; their first offsets need not.
The file is created with its first entry, and most segments never have one: for those nothing is opened or
remembered. An entry also has the last stable offset as of its marker: nothing from there on was decided yet,
so a search whose upper bound is at or below that offset needs no later entry, nor a later segment.
"""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.core.disk import Disk, File
from barnabas.core.errors import InvariantViolation, StorageError

ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_ENTRIES_A_READ = 120  # about a page of the file


class CorruptTransactionIndex(StorageError):
    """An invalid `.txnindex`; it can be rebuilt from the log."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its first record's offset, and its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedSearch(NamedTuple):
    """The transactions of one index in a range, and whether later segments cannot add any."""

    transactions: list[AbortedTransaction]
    is_complete: bool


class TransactionIndex:
    """The `.txnindex` of one segment. One task at a time writes to it; reads may run beside it."""

    __slots__ = ("_disk", "_exists", "_file", "_is_name_synced", "_last_offset", "path", "start_offset")

    def __init__(self, disk: Disk, path: str, start_offset: int = 0) -> None:
        self._disk = disk
        self._file: File | None = None
        self._exists: bool | None = None  # None until the file was looked for
        self._is_name_synced = True
        self._last_offset: int | None = None  # None until the file's last entry was read
        self.path = path
        self.start_offset = start_offset

    # --- writing

    async def append(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction; its marker must come after those of all others."""
        file = await self._opened(create=True)
        assert file is not None
        if self._last_offset is None:
            self._last_offset = await self._find_last_offset(file)
        if transaction.last_offset <= self._last_offset:
            raise InvariantViolation(
                f"{self._where()}: marker at {transaction.last_offset} comes after one at {self._last_offset}"
            )
        await file.append(ENTRY.pack(_VERSION, *transaction))
        self._last_offset = transaction.last_offset

    async def truncate_to(self, offset: int) -> None:
        """Remove transactions whose markers are at or after `offset`."""
        position, last_offset = 0, -1
        for entry in await self._entries():
            if entry.last_offset >= offset:
                break
            position, last_offset = position + ENTRY.size, entry.last_offset
        if self._file is not None and self._file.size > position:
            await self._file.truncate(position)
        self._last_offset = last_offset

    async def reset(self) -> None:
        """Remove all entries, valid or not."""
        file = await self._opened()
        if file is not None:
            await file.truncate(0)
        self._last_offset = -1

    async def sync(self) -> None:
        """Return when all entries, and the file's name, are durable."""
        if self._file is not None:
            await self._file.sync()
            if not self._is_name_synced:
                await self._disk.sync_dir(posixpath.dirname(self.path))
                self._is_name_synced = True

    # --- reading

    def is_known_empty_from(self, offset: int) -> bool:
        """Whether it is known, without reading the file, that no marker here is at or after `offset`."""
        return self._exists is False or (self._last_offset is not None and self._last_offset < offset)

    async def collect(self, fetch_offset: int, upper_bound: int) -> AbortedSearch:
        """The transactions here that overlap [fetch_offset, upper_bound), in the order of their markers."""
        found: list[AbortedTransaction] = []
        file = None if self.is_known_empty_from(fetch_offset) else await self._opened()
        number = 0 if file is None else await self._first_from(file, fetch_offset)
        while file is not None and number < (count := file.size // ENTRY.size):
            some = min(_ENTRIES_A_READ, count - number)
            data = await file.read(number * ENTRY.size, some * ENTRY.size)
            for entry in self._decode(data, number):
                if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
                    found.append(entry)
                if entry.last_stable_offset >= upper_bound:
                    return AbortedSearch(found, True)
            number += some
        return AbortedSearch(found, False)

    async def _first_from(self, file: File, offset: int) -> int:
        """An entry at or before the first one whose marker is at `offset` or later, within one read of it:
        there may be a hundred thousand entries before it."""
        low, high = 0, file.size // ENTRY.size
        while high - low > _ENTRIES_A_READ:
            middle = (low + high) // 2
            data = await file.read(middle * ENTRY.size, ENTRY.size)
            if all(entry.last_offset < offset for entry in self._decode(data, middle)):
                low = middle
            else:
                high = middle
        return low

    async def all(self) -> list[AbortedTransaction]:
        """Every transaction in the index."""
        return list(await self._entries())

    async def check(self) -> None:
        """Raise CorruptTransactionIndex if the file is invalid."""
        file = await self._opened()
        if file is not None:
            self._check_size(file)
        last_offset = self.start_offset - 1
        for number, entry in enumerate(await self._entries()):
            if entry.last_offset <= last_offset:
                raise self._corrupt(
                    f"entry {number} has its marker at {entry.last_offset}, not after {last_offset}"
                )
            if not 0 <= entry.first_offset < entry.last_offset:
                raise self._corrupt(f"entry {number} runs from {entry.first_offset} to {entry.last_offset}")
            last_offset = entry.last_offset

    # --- the file

    def close(self) -> None:
        """Close the handle; the next use opens the file again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _opened(self, *, create: bool = False) -> File | None:
        # other tasks may run while this one waits, so their results are used
        if self._exists is None:
            found = await self._disk.size_of(self.path) is not None
            if self._exists is None:
                self._exists = found
        if self._file is not None or not (self._exists or create):
            return self._file
        file = await self._disk.open(self.path, create=create)
        if self._file is not None:
            file.close()
            return self._file
        self._file = file
        if not self._exists:
            self._exists, self._is_name_synced = True, False
        return file

    async def _find_last_offset(self, file: File) -> int:
        self._check_size(file)
        data = await file.read(max(0, file.size - ENTRY.size), ENTRY.size)
        return next((entry.last_offset for entry in self._decode(data)), -1)

    def _check_size(self, file: File) -> None:
        if file.size % ENTRY.size:
            raise self._corrupt(f"{file.size} bytes are no whole number of entries")

    async def _entries(self) -> Iterator[AbortedTransaction]:
        file = await self._opened()
        if file is None:
            return iter(())
        # a torn last entry does not count; `check` reports it
        data = await file.read(0, file.size - file.size % ENTRY.size)
        return self._decode(data)

    def _decode(self, data: bytes, first_number: int = 0) -> Iterator[AbortedTransaction]:
        whole = memoryview(data)[: len(data) - len(data) % ENTRY.size]
        for number, (version, *fields) in enumerate(ENTRY.iter_unpack(whole), first_number):
            if version != _VERSION:
                raise self._corrupt(f"entry {number} has version {version}, only {_VERSION} is known")
            yield AbortedTransaction(*fields)

    def _where(self) -> str:
        return self._disk.describe(self.path)

    def _corrupt(self, reason: str) -> CorruptTransactionIndex:
        return CorruptTransactionIndex(
            f"{self._where()} is corrupt: {reason}; restart the node to rebuild it"
        )


async def collect_aborted(
    indexes: Iterable[TransactionIndex], fetch_offset: int, upper_bound: int
) -> list[AbortedTransaction]:
    """The aborted transactions that overlap [fetch_offset, upper_bound), sorted by their first offsets.

    `indexes` are those of the segments from the fetched one to the end of the log, in order: a transaction's
    marker may be far after its records.
    """
    found: list[AbortedTransaction] = []
    for index in indexes:
        search = await index.collect(fetch_offset, upper_bound)
        found += search.transactions
        if search.is_complete:
            break
    found.sort(key=lambda transaction: transaction.first_offset)
    return found
