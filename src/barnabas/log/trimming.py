"""Removing data from a partition, at either end.

At the tail: a follower that diverged truncates. Truncated records must not come back after a power failure,
after or between newer ones, so a truncation is durable before the call returns, and the recovery point is
lowered, durably, before it begins.

At the head: retention and DeleteRecords move the start of the log. The new start is durable before any file
is removed, so a file that a power failure brings back lies below it and is ignored. Files are renamed
`.deleted` and removed after `file.delete.delay.ms`, and never while they are being read.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence

from barnabas.core.errors import OffsetOutOfRange
from barnabas.log import names
from barnabas.log.partition import Doomed, PartitionLog, new_segment
from barnabas.log.producers import ProducerStates
from barnabas.log.recovery import load_producers, refill, remove_snapshots
from barnabas.log.retention import UNLIMITED, SegmentFacts, plan_retention
from barnabas.log.segment import Located, Segment

logger = logging.getLogger("barnabas.log")


async def truncate_to(log: PartitionLog, offset: int) -> bool:
    """Remove everything from `offset` on; returns whether there was anything.

    The cut falls on the start of the batch with `offset`. If nothing readable would be left before it, the
    log starts over.
    """
    async with log.turn:
        log.require_sound()
        return await truncate(log, offset)


async def truncate(log: PartitionLog, offset: int) -> bool:
    """`truncate_to` for callers that hold the lock."""
    if offset >= log.end_offset:
        # an epoch without records here may have begun elsewhere, or never
        if log.epochs.truncate_from_end(log.end_offset):
            log.epochs_changed()
        return False
    if offset < log.high_watermark:
        logger.warning(
            "%s is cut at offset %d, below its high watermark %d: its leader never had what was committed",
            log.path,
            offset,
            log.high_watermark,
        )
    keep = bisect_left(log.bases, offset)
    located = await log.segments[keep - 1].locate(offset) if keep else None
    cut = min(offset, located.header.base_offset) if located else offset
    if not keep or cut <= log.start_offset:
        await start_over(log, min(offset, log.start_offset))
        return True
    with log.reshaping():
        await _lower_marks(log, log.bases[keep - 1], cut)
        await _cut(log, keep, located)
    return True


async def truncate_fully_and_start_at(log: PartitionLog, offset: int) -> None:
    """Drop everything and restart at `offset`, as a follower does whose data the leader no longer has."""
    async with log.turn:
        log.require_sound()
        await start_over(log, offset)


async def _lower_marks(log: PartitionLog, base_offset: int, offset: int) -> None:
    """Lower the recovery point, the high watermark and the cleaner's offset: new records above the cut are
    neither synced nor replicated nor compacted. Recovery and compaction work on whole segments, so lowering
    their marks to the start of one loses nothing; if there is no record at `offset`, the log will end before
    it."""
    cleaned_offset = log.cleaned_offset or 0
    if log.recovery_point > base_offset or log.high_watermark > offset or cleaned_offset > base_offset:
        log.recovery_point = min(log.recovery_point, base_offset)
        log.high_watermark = min(log.high_watermark, offset)
        _lower_cleaned(log, base_offset)
        await log.home.persist()


def _lower_cleaned(log: PartitionLog, offset: int) -> None:
    """Records that replace compacted ones have not been compacted."""
    if log.cleaned_offset is not None:
        log.cleaned_offset = min(log.cleaned_offset, offset)


async def _cut(log: PartitionLog, keep: int, located: Located | None) -> None:
    """Remove the segments from index `keep` on, and the tail of the one before from the located batch on."""
    await _doom(log, log.segments[keep:], log.segments[:keep])
    # first the later segments are gone for good, then the tail of this one: never a hole between them
    await log.home.disk.sync_dir(log.path)
    segment = log.active
    if located is not None:
        await segment.truncate(located.position, located.header.base_offset)
    tail = await segment.tail()
    end_offset = tail[-1].next_offset if tail else segment.base_offset
    log.end_offset = end_offset
    log.high_watermark = min(log.high_watermark, end_offset)
    if log.epochs.truncate_from_end(end_offset):
        log.epochs_changed()
    log.producers, log.side.snapshot_offset = await load_producers(
        log.home.disk, log.path, log.segments, end_offset
    )
    log.side.names_changed()  # snapshots of truncated records were removed, and must not come back
    await refill(log.segments, log.producers)
    log.producers.on_high_watermark(log.high_watermark)


async def start_over(log: PartitionLog, offset: int) -> None:
    """`truncate_fully_and_start_at` for callers that hold the lock."""
    with log.reshaping():
        log.recovery_point = min(log.recovery_point, offset, log.bases[0])
        log.high_watermark = min(log.high_watermark, offset)
        _lower_cleaned(log, offset)
        # meanwhile, no deleted record may come back
        log.start_offset = max(log.start_offset, offset)
        log.side.names_changed()  # for a while no segment shows where the log starts
        await log.home.persist()
        await _doom(log, log.segments, [])
        await remove_snapshots(log.home.disk, log.path)
        log.epochs.clear()
        log.epochs_changed()
        # the old segments and epochs are gone for good before a new segment makes them seem valid
        await log.side.sync()
        log.side.names_changed()
        if log.start_offset != offset:
            log.start_offset = offset
            await log.home.persist()
        segment = new_segment(log.home, log.path, log.config, offset)
        await segment.create()
        await segment.create_indexes()
        log.segments, log.bases = [segment], [offset]
        log.end_offset = log.high_watermark = log.recovery_point = offset
        log.producers, log.side.snapshot_offset = ProducerStates(offset), offset


async def delete_records(log: PartitionLog, up_to: int) -> int:
    """Move the start of the log up to `up_to` (-1: the high watermark); returns the new start."""
    async with log.turn:
        log.require_sound()
        offset = log.high_watermark if up_to == -1 else up_to
        if not 0 <= offset <= log.high_watermark:
            raise OffsetOutOfRange(
                f"cannot delete {log.path} up to {up_to}: its high watermark is {log.high_watermark}"
            )
        await raise_start_offset(log, offset)
        return log.start_offset


async def raise_start_offset(log: PartitionLog, offset: int) -> None:
    """Move the start of the log to `offset`, not above its high watermark; the caller holds the lock."""
    if offset <= log.start_offset:
        return
    # a start that might not last is not published, and no file is removed because of it
    log.start_to_be = offset
    try:
        await log.home.persist()
        log.start_offset = offset
    finally:
        log.start_to_be = 0
    log.is_dirty = True
    if log.epochs.truncate_from_start(offset):
        log.epochs_changed()
    log.producers.on_log_start_offset(offset)


async def apply_retention(log: PartitionLog) -> int:
    """Delete the segments that `retention.*` and the start offset no longer cover; returns their number."""
    async with log.turn:
        log.require_sound()
        is_limited = "delete" in log.config.cleanup_policy
        plan = plan_retention(
            await segment_facts(log),
            now_ms=log.home.clock.wall_ms(),
            retention_ms=log.config.retention_ms if is_limited else UNLIMITED,
            retention_bytes=log.config.retention_bytes if is_limited else UNLIMITED,
            log_start_offset=log.start_offset,
            high_watermark=log.high_watermark,
        )
        if not plan.delete:
            return 0
        if plan.roll_active:
            await log.roll_to(log.end_offset)
        await raise_start_offset(log, plan.log_start_offset)
        for base_offset, reason in zip(plan.delete, plan.reasons, strict=True):
            logger.info("deleting segment %d of %s: %s", base_offset, log.path, reason.value)
        count = len(plan.delete)
        with log.reshaping():
            await _doom(log, log.segments[:count], log.segments[count:])
        return count


async def segment_facts(log: PartitionLog) -> list[SegmentFacts]:
    """The facts about the segments that retention depends on."""
    facts = []
    for index, segment in enumerate(log.segments):
        await segment.ready()
        next_offset = log.bases[index + 1] if index + 1 < len(log.segments) else log.end_offset
        modified_ms = 0
        # compaction may have left nothing of a segment but its file's time
        if segment.max_timestamp < 0 and (segment.size_bytes or segment is not log.active):
            modified_ms = await log.home.disk.modified_ms(segment.path(names.LOG))
        facts.append(
            SegmentFacts(
                segment.base_offset, next_offset, segment.size_bytes, segment.max_timestamp, modified_ms
            )
        )
    return facts


async def _doom(log: PartitionLog, doomed: Sequence[Segment], kept: Sequence[Segment]) -> None:
    """Take segments out of the log; their files are removed later."""
    if not doomed:
        return
    log.segments = list(kept)
    log.bases = [segment.base_offset for segment in kept]
    log.side.names_changed()
    due_at = log.home.clock.monotonic() + log.config.file_delete_delay_ms / 1000
    for segment in doomed:
        paths = await segment.doom()
        snapshot = log.side.snapshot_path(segment.base_offset)
        # the newest snapshot stays: the producers' state would be rebuilt from it
        if (
            segment.base_offset != log.side.snapshot_offset
            and await log.home.disk.size_of(snapshot) is not None
        ):
            await log.home.disk.rename(snapshot, snapshot + names.DELETED)
            paths.append(snapshot + names.DELETED)
        log.doomed.append(Doomed(due_at, segment, tuple(paths)))
    log.side.names_changed()  # a sync in progress may have missed some of it


async def sweep(log: PartitionLog) -> int:
    """Remove doomed files that are due and not being read; returns the number of segments removed."""
    now = log.home.clock.monotonic()
    due = [gone for gone in log.doomed if gone.due_at <= now and not gone.segment.is_pinned]
    for gone in due:
        for path in gone.paths:
            await log.home.disk.remove(path)
        gone.segment.close()
        log.doomed = [other for other in log.doomed if other is not gone]
    return len(due)
