"""Reading a partition: ranges of its files, and look-ups by offset, time and epoch.

A read returns a range of one segment's file: whole batches, at least one, never beyond the reader's bound.
Its bytes do not pass through Python. The first batch may begin before the requested offset: the client skips
the records before it, as in Kafka.

Nothing here takes the log's lock. A caller that keeps a range across an await pins its file. A truncation
during a look-up changes the log's `shape`, and the look-up starts over.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import NamedTuple, TypeVar

from barnabas.core.disk import DiskFailed, FileRange
from barnabas.core.errors import OffsetOutOfRange
from barnabas.log.partition import Bound, PartitionLog, ReadEnd
from barnabas.log.segment import Located, Segment
from barnabas.log.txn_index import AbortedTransaction, collect_aborted
from barnabas.records.batch import NO_LEADER_EPOCH, NO_TIMESTAMP, BatchHeader
from barnabas.records.reader import read_batch, read_batches
from barnabas.records.record import Record

T = TypeVar("T")

# ListOffsets' special timestamps
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

UNKNOWN_OFFSET = -1


class Fetched(NamedTuple):
    """The result of a read, with the log's offsets at that time."""

    range: FileRange | None
    aborted: tuple[AbortedTransaction, ...] | None
    start_offset: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    readable_bytes: int = 0  # without a limit on the read; ENDLESS if more follows in a later segment


class TimestampOffset(NamedTuple):
    """An offset found by time; all fields are -1 if there is none."""

    timestamp_ms: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH


ENDLESS = 2**63 - 1

# readers of one partition that read at its end without look-ups
_ENDS_KEPT = 16

NOTHING = TimestampOffset(NO_TIMESTAMP, UNKNOWN_OFFSET)


async def read(
    log: PartitionLog, offset: int, max_bytes: int, bound: Bound = Bound.HIGH_WATERMARK
) -> Fetched:
    """The batches from `offset` on, up to `max_bytes` (or one batch, if that is larger) and to the bound."""
    return await _undisturbed(log, lambda: _find_batches(log, offset, max_bytes, bound))


def read_on(log: PartitionLog, offset: int, max_bytes: int, bound: Bound) -> Fetched | None:
    """As `read`, but synchronous: for a reader at its bound, or where another read ended; None otherwise.

    A bound before the end of the log, such as the high watermark of a replicated partition, must be the end
    of another read as well: that of a follower, which was there first.
    """
    shape, end_offset = log.shape, log.end_offset
    upper = log.bound(bound)
    if shape & 1 or log.ended is not None or not log.start_offset <= offset <= end_offset:
        return None
    segment = log.segments[-1]
    if bound is Bound.LAST_STABLE and not segment.aborted.is_known_empty_from(offset):
        return None
    found: FileRange | None = None
    size = 0
    if offset < upper:
        known, file = log.read_ends.get(offset), segment.opened_file
        if known is None or known.segment is not segment or known.shape != shape:
            return None
        stop = segment.size_bytes
        if upper < end_offset:
            until = log.read_ends.get(upper)
            if until is None or until.segment is not segment or until.shape != shape:
                return None
            stop = until.position
        size = stop - known.position
        if size > max_bytes or file is None:
            return None
        if size:  # else one batch goes beyond the bound
            found = FileRange(file, known.position, size)
    if upper == end_offset:
        _remember(log, upper, ReadEnd(shape, segment, segment.size_bytes))
    return Fetched(
        found,
        () if bound is Bound.LAST_STABLE else None,
        log.start_offset,
        end_offset,
        log.high_watermark,
        log.last_stable_offset,
        size,
    )


def unread(log: PartitionLog, bound: Bound) -> Fetched:
    """The log's offsets without data, for a reader that has no room left."""
    return Fetched(
        None,
        () if bound is Bound.LAST_STABLE else None,
        log.start_offset,
        log.end_offset,
        log.high_watermark,
        log.last_stable_offset,
    )


def _remember(log: PartitionLog, offset: int, end: ReadEnd) -> None:
    ends = log.read_ends
    ends[offset] = end
    if len(ends) > _ENDS_KEPT:
        del ends[next(iter(ends))]  # the oldest one


async def _find_batches(log: PartitionLog, offset: int, max_bytes: int, bound: Bound) -> Fetched:
    if not log.start_offset <= offset <= log.end_offset:
        raise OffsetOutOfRange(
            f"offset {offset} of {log.path} is not between {log.start_offset} and {log.end_offset}"
        )
    shape, upper = log.shape, log.bound(bound)
    found: FileRange | None = None
    readable = 0
    aborted: list[AbortedTransaction] = []
    index = log.floor_segment(offset)
    while offset < upper and index < len(log.segments):
        segment = log.segments[index]
        located = await segment.locate(offset)
        if located is None:
            index += 1  # compaction removed the records here
            continue
        if located.header.last_offset >= upper:
            break
        end, whole = await _ends(log, index, located.position, max_bytes, upper)
        readable = ENDLESS if upper > _next_offset(log, index) else whole - located.position
        found = FileRange(await segment.file(), located.position, end - located.position)
        if end == whole and upper <= _next_offset(log, index) and segment is log.segments[-1]:
            _remember(log, upper, ReadEnd(shape, segment, end))
        if bound is Bound.LAST_STABLE:
            aborted = await _aborted_between(log, index, offset, end, upper)
        break
    return Fetched(
        found,
        tuple(aborted) if bound is Bound.LAST_STABLE else None,
        log.start_offset,
        log.end_offset,
        log.high_watermark,
        log.last_stable_offset,
        readable,
    )


async def _ends(log: PartitionLog, index: int, start: int, max_bytes: int, upper: int) -> tuple[int, int]:
    """The position in the segment where a read from `start` ends, and where it would end without a limit."""
    segment = log.segments[index]
    whole = segment.size_bytes
    if upper < _next_offset(log, index):
        beyond = await segment.locate(upper)
        whole = whole if beyond is None else beyond.position
    if whole - start <= max_bytes:
        return whole, whole
    return min(whole, await segment.boundary_before(start, start + max_bytes)), whole


def _next_offset(log: PartitionLog, index: int) -> int:
    return log.segments[index + 1].base_offset if index + 1 < len(log.segments) else log.end_offset


async def _aborted_between(
    log: PartitionLog, index: int, offset: int, end: int, upper: int
) -> list[AbortedTransaction]:
    """The aborted transactions with records in the range, by first offset."""
    segment = log.segments[index]
    beyond = await segment.offsets.ceiling(end, column=1)
    stop = _next_offset(log, index) if beyond is None else segment.base_offset + beyond[0]
    indexes = (later.aborted for later in log.segments[index:])
    return await collect_aborted(indexes, offset, min(stop, upper))


async def _undisturbed(log: PartitionLog, look: Callable[[], Awaitable[T]]) -> T:
    """Repeat a look-up if the log was truncated, or a segment deleted, meanwhile."""
    while True:
        if log.ended is not None:
            raise log.ended
        if log.shape & 1:
            async with log.turn:
                continue
        before = log.shape
        try:
            result = await look()
        except Exception as error:
            # bytes, files or segments may have moved: it is an error only if nothing did
            if before == log.shape and log.ended is None:
                if isinstance(error, DiskFailed):
                    log.home.on_trouble(error)
                raise
            continue
        if before == log.shape and log.ended is None:
            return result


async def offset_for_timestamp(log: PartitionLog, timestamp_ms: int) -> TimestampOffset:
    """The first record at or after a time, or the offset for one of ListOffsets' special timestamps."""
    if timestamp_ms >= 0:
        return await _undisturbed(log, lambda: _search(log, timestamp_ms))
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(NO_TIMESTAMP, log.start_offset, _epoch_at(log, log.start_offset))
    if timestamp_ms == LATEST:
        latest = log.epochs.latest_epoch
        return TimestampOffset(NO_TIMESTAMP, log.end_offset, NO_LEADER_EPOCH if latest is None else latest)
    if timestamp_ms == MAX_TIMESTAMP:
        return await _undisturbed(log, lambda: _newest(log))
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING  # there is no remote tier
    raise ValueError(f"{timestamp_ms} is no timestamp that ListOffsets knows")


def _epoch_at(log: PartitionLog, offset: int) -> int:
    epoch = log.epochs.epoch_for_offset(offset)
    return NO_LEADER_EPOCH if epoch is None else epoch


async def _search(log: PartitionLog, timestamp_ms: int) -> TimestampOffset:
    start_offset = log.start_offset
    for segment in log.segments[log.floor_segment(start_offset) :]:
        await segment.ready()
        if segment.max_timestamp < timestamp_ms:
            continue
        entry = await segment.times.floor(timestamp_ms)
        from_offset = max(segment.base_offset + (entry[1] if entry else 0), start_offset)
        scan = await segment.scan(await segment.offsets.position_before(from_offset))
        position = scan.position
        while headers := await scan.run():
            for header in headers:
                if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
                    for record in await _records(segment, Located(position, header)):
                        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                            return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
                position += header.size_bytes
        scan.require_end()
    return NOTHING


async def _newest(log: PartitionLog) -> TimestampOffset:
    """The first record that has the largest timestamp."""
    start_offset = log.start_offset
    newest = NO_TIMESTAMP
    for segment in log.segments[log.floor_segment(start_offset) :]:
        await segment.ready()
        if segment.base_offset >= start_offset:
            newest = max(newest, segment.max_timestamp)
        elif segment.max_timestamp >= 0:
            newest = max(newest, await _newest_from(segment, start_offset))
    if newest < 0:
        return NOTHING
    found = await _search(log, newest)
    if found != NOTHING:
        return found
    # a batch that a compaction emptied keeps its timestamp
    newest = NO_TIMESTAMP
    for segment in log.segments[log.floor_segment(start_offset) :]:
        newest = max(newest, await _newest_from(segment, start_offset))
    return NOTHING if newest < 0 else await _search(log, newest)


async def _newest_from(segment: Segment, start_offset: int) -> int:
    """The largest timestamp in a segment whose first records are before the start of the log."""
    newest = NO_TIMESTAMP
    scan = await segment.scan(await segment.offsets.position_before(start_offset))
    position = scan.position
    while headers := await scan.run():
        for header in headers:
            if header.base_offset >= start_offset and header.record_count:
                newest = max(newest, header.max_timestamp)
            elif header.last_offset >= start_offset and header.record_count:
                records = await _records(segment, Located(position, header))
                newest = max(newest, *(one.timestamp for one in records if one.offset >= start_offset), -1)
            position += header.size_bytes
    scan.require_end()
    return newest


async def _records(segment: Segment, located: Located) -> Iterator[Record]:
    """Lazily: a compressed batch may hold millions of records."""
    data = await (await segment.file()).read(located.position, located.header.size_bytes)
    return read_batch(data, 0)


def end_offset_for_epoch(log: PartitionLog, epoch: int) -> tuple[int, int]:
    """OffsetForLeaderEpoch: the largest epoch up to the requested one, and its end; -1, -1 if unknown."""
    found = log.epochs.end_offset_for(epoch, log.end_offset)
    return found.epoch, found.start_offset


async def batches(
    log: PartitionLog, offset: int, end_offset: int, chunk_bytes: int = 1 << 20
) -> AsyncGenerator[tuple[bytes, int, BatchHeader], None]:
    """The batches of the log from the one with `offset` on, each as bytes, position and header."""
    while offset < end_offset:
        fetched = await read(log, offset, chunk_bytes, Bound.LOG_END)
        if fetched.range is None:
            return
        file, start, size = fetched.range
        file.pin()  # compaction may replace it meanwhile
        try:
            chunk = await file.read(start, size)
        finally:
            file.unpin()
        for header, position in read_batches(chunk):
            if header.base_offset >= end_offset:
                return
            yield chunk, position, header
            offset = header.next_offset
