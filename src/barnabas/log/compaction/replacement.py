"""A segment that a compaction writes: its files end in `.cleaned` until they are complete and durable.

Nothing reads them before that. After a failure they are removed, and a start removes those that a crash left
behind, so their changes need no particular order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from barnabas.core.disk import Buffer, File
from barnabas.core.errors import StorageError
from barnabas.log import names
from barnabas.log.partition import PartitionLog
from barnabas.log.segment import Segment
from barnabas.log.txn_index import AbortedTransaction
from barnabas.records import kernel

logger = logging.getLogger("barnabas.log")

# batches may be as small as one record, thousands of them in a buffer: the loop runs in between
COUNTED_AT_ONCE_BYTES = 16 << 10

SUFFIXES = (names.LOG, names.INDEX, names.TIME_INDEX, names.TXN_INDEX)


class Replacement:
    """The future replacement of a group of segments, with the base offset of the first of them."""

    def __init__(self, log: PartitionLog, base_offset: int) -> None:
        self._disk = log.home.disk
        self._path = log.path
        self._file: File | None = None
        self._segment = Segment(
            log.home.disk,
            log.path,
            base_offset,
            index_interval_bytes=log.config.index_interval_bytes,
            index_bytes=log.config.segment_index_bytes,
            created_ms=0,
            ending=names.CLEANED,
        )
        self.base_offset = base_offset
        self.next_offset = base_offset  # after its last batch

    @property
    def size_bytes(self) -> int:
        return self._segment.size_bytes

    async def create(self) -> None:
        """Create the empty files; those of an earlier attempt must be gone (see `remove_cleaned`)."""
        await self._segment.create()
        self._file = self._segment.opened_file

    async def append(self, data: Buffer) -> None:
        """Add batches, in their order."""
        assert self._file is not None
        await self._file.append(data)
        position = 0
        while position < len(data):
            position = self._count(data, position)
            await asyncio.sleep(0)
        segment = self._segment
        if segment.offsets.wants_write:
            await segment.offsets.write()
        if segment.times.wants_write:
            await segment.times.write()

    def _count(self, data: Buffer, position: int) -> int:
        """Index some of the batches that were written; returns the position of the next one."""
        found = kernel.scan_headers(data, position, min(position + COUNTED_AT_ONCE_BYTES, len(data)))
        headers = [header for header, _ in found]
        end = position + sum(header.size_bytes for header in headers)
        if not headers or end > len(data):
            raise self._segment.corrupt(self.size_bytes, "what was to be written is no whole batch")
        self._segment.count(headers)
        self.next_offset = headers[-1].next_offset
        return end

    async def note_aborted(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction to the index; calls come in the order of the markers."""
        await self._segment.aborted.append(transaction)

    async def finish(self, modified_ms: int) -> None:
        """Make everything durable, names included, with the modification time of the originals."""
        segment = self._segment
        assert self._file is not None
        segment.times.add(segment.max_timestamp, segment.max_timestamp_offset)
        await segment.offsets.seal()
        await segment.times.seal()
        await self._file.sync()
        await segment.offsets.sync()
        await segment.times.sync()
        await segment.aborted.sync()
        segment.close()
        await self._disk.set_modified_ms(segment.path(names.LOG), modified_ms)
        await self._disk.sync_dir(self._path)

    async def files(self) -> Sequence[str]:
        """The suffixes of its files, the batches' first; not every segment has aborted transactions."""
        sizes = [(suffix, await self._disk.size_of(self._segment.path(suffix))) for suffix in SUFFIXES]
        return [suffix for suffix, size in sizes if size is not None]

    async def discard(self) -> None:
        """Remove the files, as far as possible: the next attempt, or a start, removes the rest."""
        self._segment.close()
        for suffix in SUFFIXES:
            try:
                await self._disk.remove(self._segment.path(suffix))
            except StorageError as error:
                logger.warning("%s", error)


async def remove_cleaned(log: PartitionLog) -> None:
    """Remove files that an earlier attempt could not remove: after a crash they would make a later swap,
    which does not involve them, look incomplete."""
    for name in await log.home.disk.listdir(log.path):
        if name.endswith(names.CLEANED):
            await log.home.disk.remove(f"{log.path}/{name}")
