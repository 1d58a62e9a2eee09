"""The first half of a cleaning: the latest offset of each key in the dirty part of the log.

Keys of aborted records do not count: they supersede nothing. When the map is full the cleaning covers only
the part up to there, and the next one begins at that offset.
"""

from __future__ import annotations

from barnabas.log.compaction.plan import Cleanable
from barnabas.log.compaction.portions import JUDGED_AT_ONCE, CleanerIo, Portions, portions
from barnabas.log.compaction.transactions import TransactionWalk
from barnabas.log.partition import PartitionLog
from barnabas.log.segment import Segment
from barnabas.log.txn_index import collect_aborted
from barnabas.records.batch import BatchHeader
from barnabas.records.kernel import OffsetMap
from barnabas.records.reader import read_batch, records_section


class Mapping:
    """Fills the map; `bytes_read` counts the bytes of the log that were read for it."""

    def __init__(self, log: PartitionLog, cleanable: Cleanable, offsets: OffsetMap, io: CleanerIo) -> None:
        self._log = log
        self._offsets = offsets
        self._io = io
        self._first_offset = cleanable.first_dirty_offset
        self._end_offset = cleanable.first_uncleanable_offset
        self._limit = int(offsets.slots * io.load_factor)
        self._transactions = TransactionWalk()
        self.bytes_read = 0

    async def run(self, segments: list[Segment]) -> None:
        """Note the dirty part of these segments, which are all those below the first uncleanable offset."""
        if self._limit < 1:
            raise ValueError(f"a map of {self._offsets.slots} slots has no room for a key")
        self._offsets.clear()
        ends = [segment.base_offset for segment in segments[1:]] + [self._end_offset]
        dirty = [(one, end) for one, end in zip(segments, ends, strict=True) if end > self._first_offset]
        if not dirty:
            return
        indexes = (one.aborted for one in self._log.segments[segments.index(dirty[0][0]) :])
        self._transactions.expect(await collect_aborted(indexes, self._first_offset, self._end_offset))
        for segment, end in dirty:
            if await self._is_full_after(segment):
                break
            # offsets without a record are covered, too
            self._offsets.advance(end - 1)

    async def _is_full_after(self, segment: Segment) -> bool:
        position = await segment.offsets.position_before(self._first_offset)
        async with portions(self._log, segment, self._io, position) as walk:
            while data := await walk.read():
                count, is_full = await self._note(walk, data)
                if is_full:
                    return True
                walk.consume(data, count)
                self.bytes_read += count
        return False

    async def _note(self, walk: Portions, data: bytes) -> tuple[int, bool]:
        """Note the whole batches at the start of `data`: returns their size, and whether the map is full."""
        position, is_over, is_full = 0, False, False
        while not (is_over or is_full):
            position, is_over, is_full = await walk.run(self._note_some, data, position)
        return position, is_full

    def _note_some(self, data: bytes, position: int) -> tuple[int, bool, bool]:
        """Continue at `position`: returns where it stopped, whether no whole batch is left, whether the map
        is full."""
        for _ in range(JUDGED_AT_ONCE):
            position, header, is_full = self._offsets.note(
                data, position, len(data), self._first_offset, self._limit
            )
            if header is None or is_full:
                return position, True, is_full
            if self._is_full_with(data, position, header):
                return position, True, True
            position += header.size_bytes
        return position, False, False

    def _is_full_with(self, data: bytes, position: int, header: BatchHeader) -> bool:
        """Note a batch that is not plain; returns whether the map is full."""
        if header.is_control:
            self._transactions.end(header, next(read_batch(data, position, header), None))
        elif not self._transactions.is_aborted(header):
            section = records_section(data, position, header)
            return self._offsets.note_section(*section, header, self._first_offset, self._limit)
        if header.last_offset >= self._first_offset:
            self._offsets.advance(header.last_offset)
        return False
