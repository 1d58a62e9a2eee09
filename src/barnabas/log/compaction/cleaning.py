"""One cleaning of a log: rewrites everything below the first uncleanable offset, without superseded records.

First the map learns the latest offset of each key in the dirty part (`mapping`). Then the segments are read
from the first one on, in groups: the remaining records of a group go into one new segment, which replaces the
group (`swap`). The kernel filters plain batches; transactional and compressed ones are handled here. The
rules, and how a batch changes that loses records, are in the kernel's `BatchFilter`.

- Only durable data is replaced: the log is flushed first, and its recovery point is above.
- A group is in place before the next one is begun. So no tombstone gets its delete horizon, and none is
  removed, while an older record of its key exists: that record is in the same group or in an earlier one.
- Batches beyond the part that the map covers, if the map got full, are copied unchanged. Otherwise a
  tombstone's delete horizon would be set, and might pass, while older records that it deletes can still be
  read.
- Only the swap takes the log's lock. If the log is cut at one of its ends meanwhile, the cleaning is given
  up; groups that are already in place stay, and are valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.core.disk import HandleClosed
from barnabas.core.errors import BarnabasError
from barnabas.log import names
from barnabas.log.compaction.mapping import Mapping
from barnabas.log.compaction.plan import Cleanable, group_segments
from barnabas.log.compaction.portions import JUDGED_AT_ONCE, CleanerIo, Portions, portions
from barnabas.log.compaction.replacement import Replacement, remove_cleaned
from barnabas.log.compaction.survey import segment_facts
from barnabas.log.compaction.swap import Stand, swap_in
from barnabas.log.compaction.throttle import GivenUp
from barnabas.log.compaction.transactions import TransactionWalk
from barnabas.log.partition import PartitionLog
from barnabas.log.segment import Segment
from barnabas.log.txn_index import AbortedTransaction, collect_aborted
from barnabas.records import kernel
from barnabas.records.batch import BatchHeader
from barnabas.records.builder import compress_batch
from barnabas.records.kernel import BatchFilter, OffsetMap
from barnabas.records.reader import read_batch, records_section

__all__ = ["CleanStats", "Cleaned", "CleanerIo", "clean"]


class CleanStats(NamedTuple):
    """The statistics of one cleaning."""

    map_bytes_read: int = 0
    map_slots_used: int = 0
    segments_before: int = 0
    segments_after: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    batches_read: int = 0
    batches_kept: int = 0
    records_read: int = 0
    records_kept: int = 0


class Cleaned(NamedTuple):
    """The result of a cleaning: the log is clean below `end_offset`, which is where the next one begins."""

    end_offset: int
    stats: CleanStats


async def clean(
    log: PartitionLog,
    cleanable: Cleanable,
    offsets: OffsetMap,
    *,
    io: CleanerIo,
    now_ms: int | None = None,
) -> Cleaned:
    """Carry out the plan; one at a time for a log.

    GivenUp if the log was cut meanwhile, a StorageError if the disk fails: then the log is unchanged, except
    for the groups that are already in place.
    """
    now_ms = log.home.clock.wall_ms() if now_ms is None else now_ms
    await log.flush(cleanable.first_uncleanable_offset)
    await log.home.persist()  # recovery must know, too, that all of it is durable, and may have gaps
    await remove_cleaned(log)
    async with log.turn:
        log.require_sound()
        facts = await segment_facts(log)
        stand = Stand(log, cleanable.first_uncleanable_offset)
        stand.require()
        _require_current(log, cleanable)
    mapping = Mapping(log, cleanable, offsets, io)
    try:
        await mapping.run(list(stand.segments))
        seen_end = await _seen_end(stand.segments, cleanable.first_dirty_offset, offsets.latest_offset)
        groups = group_segments(
            facts[: len(stand.segments)],
            end_offset=seen_end,
            first_uncleanable_offset=cleanable.first_uncleanable_offset,
            segment_bytes=log.config.segment_bytes,
            index_bytes=log.config.segment_index_bytes,
        )
        end_offset = cleanable.first_uncleanable_offset
        walk = _Round(log, end_offset, seen_end, offsets, io, now_ms, TransactionWalk())
        done = [await _clean_group(walk, stand, group) for group in groups]
    except (BarnabasError, HandleClosed):
        stand.require()  # missing files are no error if they were removed on purpose
        raise
    stats = CleanStats(
        map_bytes_read=mapping.bytes_read,
        map_slots_used=offsets.size,
        segments_before=sum(map(len, groups)),
        segments_after=len(groups),
    )
    for counts in done:
        stats = stats._replace(**{name: getattr(stats, name) + count for name, count in counts.items()})
    return Cleaned(max(seen_end, cleanable.first_dirty_offset), stats)


def _require_current(log: PartitionLog, cleanable: Cleanable) -> None:
    """GivenUp if the log was cut since the plan was made; appends since then do not matter. After a cut, part
    of what the plan takes as compacted may not be, or part of what it replaces may be undecided."""
    end_offset = cleanable.first_uncleanable_offset
    if (
        cleanable.first_dirty_offset > max(log.cleaned_offset or 0, log.start_offset)
        or end_offset > log.last_stable_offset
        or end_offset not in log.bases
    ):
        raise GivenUp(f"{log.path} was cut since its compaction was planned")


async def _seen_end(segments: Sequence[Segment], first_dirty_offset: int, latest_offset: int) -> int:
    """The end of the part of the log that the map covers: if the map got full in the middle of a batch, the
    start of that batch, unless nothing at all would be cleaned then."""
    for segment in reversed(segments):
        if segment.base_offset <= latest_offset:
            located = await segment.locate(latest_offset + 1)
            if located is not None and first_dirty_offset < located.header.base_offset <= latest_offset:
                return located.header.base_offset
            break
    return latest_offset + 1


class _Round(NamedTuple):
    """The state shared by all groups."""

    log: PartitionLog
    end_offset: int
    seen_end: int
    offsets: OffsetMap
    io: CleanerIo
    now_ms: int
    transactions: TransactionWalk


async def _clean_group(walk: _Round, stand: Stand, bases: Sequence[int]) -> dict[str, int]:
    """Rewrite a group and replace it with the result; returns the numbers to add to the statistics."""
    originals = [one for one in stand.segments if bases[0] <= one.base_offset <= bases[-1]]
    group = _Group(walk, Replacement(walk.log, bases[0]))
    try:
        await group.replacement.create()
        for segment in originals:
            stand.require()
            await group.add(segment)
        modified_ms = await walk.log.home.disk.modified_ms(originals[-1].path(names.LOG))
        await group.replacement.finish(modified_ms)
        await swap_in(walk.log, stand, originals, group.replacement)
    except BaseException:
        await group.replacement.discard()
        raise
    return {
        "bytes_read": sum(segment.size_bytes for segment in originals),
        "bytes_written": group.replacement.size_bytes,
        "batches_read": group.kept.batches_read,
        "batches_kept": group.kept.batches_kept,
        "records_read": group.kept.records_read,
        "records_kept": group.kept.records_kept,
    }


class _Group:
    """The segments of a group, filtered into the one that will replace them."""

    def __init__(self, walk: _Round, replacement: Replacement) -> None:
        log, self._io, self._now_ms = walk.log, walk.io, walk.now_ms
        self._log = log
        self._seen_end = walk.seen_end
        self._transactions = walk.transactions
        self._producers = log.producers.last_batches()
        self._aborted: list[AbortedTransaction] = []
        self.replacement = replacement
        self.kept = BatchFilter(
            walk.offsets,
            self._producers.offsets,
            walk.end_offset,
            walk.now_ms,
            log.config.delete_retention_ms,
        )

    async def add(self, segment: Segment) -> None:
        """Filter the batches that the map covers at least in part, and copy the others."""
        following = self._log.segments[self._log.segments.index(segment) :]
        indexes = (one.aborted for one in following)
        next_base = following[1].base_offset
        self._transactions.expect(await collect_aborted(indexes, segment.base_offset, next_base))
        unseen = await self._unseen_from(segment)
        async with portions(self._log, segment, self._io, 0, unseen) as walk:
            while data := await walk.read():
                walk.consume(data, await self._filter(walk, data))
        await self._write(self.kept.take())
        if unseen < segment.size_bytes:
            await self._copy(segment, unseen)

    async def _unseen_from(self, segment: Segment) -> int:
        """The position of the first batch that the map does not cover at all."""
        located = await segment.locate(self._seen_end)
        if located is None:
            return segment.size_bytes
        is_seen = located.header.base_offset < self._seen_end
        return located.position + (located.header.size_bytes if is_seen else 0)

    async def _write(self, data: memoryview) -> None:
        if len(data):
            await self._io.throttle(len(data))
            await self.replacement.append(data)

    async def _filter(self, walk: Portions, data: bytes) -> int:
        """Filter the whole batches at the start of `data`; returns their size in bytes."""
        position, is_over = 0, False
        while not is_over:
            position, is_over = await walk.run(self._filter_some, data, position)
        for transaction in self._aborted:
            await self.replacement.note_aborted(transaction)
        self._aborted.clear()
        if self.kept.gathered_bytes >= self._io.buffer_bytes:
            await self._write(self.kept.take())
        return position

    def _filter_some(self, data: bytes, position: int) -> tuple[int, bool]:
        """Continue at `position`: returns where it stopped, and whether no whole batch is left."""
        for _ in range(JUDGED_AT_ONCE):
            position, header = self.kept.run(data, position, len(data))
            if header is None:
                return position, True
            if header.is_control:
                self._filter_marker(data, position, header)
            else:
                self._filter_batch(data, position, header)
            position += header.size_bytes
        return position, False

    def _filter_marker(self, data: bytes, position: int, header: BatchHeader) -> None:
        ended = self._transactions.end(header, next(read_batch(data, position, header), None))
        if ended.aborted is not None:
            self._aborted.append(ended.aborted)
        horizon_ms = header.delete_horizon_ms
        self.kept.batch(
            data,
            position,
            header,
            *records_section(data, position, header),
            discard_records=ended.is_gone and horizon_ms is not None and horizon_ms <= self._now_ms,
            keep_empty=self._producers.epochs.get(header.producer_id) == header.producer_epoch,
            wants_horizon=ended.is_gone,
        )

    def _filter_batch(self, data: bytes, position: int, header: BatchHeader) -> None:
        is_aborted = self._transactions.is_aborted(header)
        section = (data, 0, 0) if is_aborted else records_section(data, position, header)
        rebuilt = self.kept.batch(data, position, header, *section, discard_records=is_aborted)
        if rebuilt is not None:
            compressed = compress_batch(rebuilt, header.codec)
            self.kept.copy(compressed, 0, len(compressed))

    async def _copy(self, segment: Segment, start: int) -> None:
        """Copy the batches from `start` on, and the index entries of aborted transactions that end there."""
        first_offset: int | None = None
        async with portions(self._log, segment, self._io, start) as walk:
            while data := await walk.read():
                headers, count, problem = await walk.run(kernel.scan, data, 0, len(data), True)
                if problem is not None:
                    raise segment.corrupt(walk.position + count, problem)
                if first_offset is None and headers:
                    first_offset = headers[0].base_offset
                walk.consume(data, count)
                await self._write(memoryview(data)[:count])
        for transaction in await segment.aborted.all():
            if first_offset is not None and transaction.last_offset >= first_offset:
                await self.replacement.note_aborted(transaction)
