"""Changes of a follower's log by the answers of its leader, and the epochs for which these are valid.

Every change is made under the log's lock, and only while the epoch lasts in which the leader was asked:
`refuse_epochs_before` ends it, and a late answer changes nothing any more (FencedLeaderEpoch).

A follower truncates by leader epochs, never by its high watermark: it cuts where the two histories diverge.
The high watermark never exceeds the end of the follower's log; the start of the log follows the leader's, up
to the high watermark.
"""

from __future__ import annotations

import logging

from barnabas.core.disk import Buffer
from barnabas.log import trimming
from barnabas.log.epochs import UNDEFINED_OFFSET
from barnabas.log.partition import PartitionLog, UnexpectedOffset

logger = logging.getLogger("barnabas.log")


async def append(log: PartitionLog, data: Buffer, leader_epoch: int) -> int:
    """Append the leader's batches; returns the number of bytes that were appended."""
    try:
        appended = await log.append_as_follower(data, leader_epoch)
    except UnexpectedOffset as error:
        if not (log.start_offset == log.end_offset and error.first_offset < log.end_offset):
            raise
        # The leader's log begins in the middle of a batch, and batches are never cut.
        await begin_at(log, error.first_offset, leader_epoch)
        appended = await log.append_as_follower(data, leader_epoch)
    return 0 if appended is None else appended.stored_bytes


async def follow_marks(log: PartitionLog, high_watermark: int, start_offset: int, leader_epoch: int) -> None:
    """Advance the high watermark and the start of the log to the leader's."""
    log.require_epoch(leader_epoch)
    log.advance_high_watermark(high_watermark)
    if start_offset > log.start_offset < log.high_watermark:
        async with log.turn:
            log.require_sound()
            log.require_epoch(leader_epoch)
            await trimming.raise_start_offset(log, min(start_offset, log.high_watermark))


async def truncate_to_leader(log: PartitionLog, epoch: int, end_offset: int, leader_epoch: int) -> bool:
    """Truncate by the leader's answer: of the epochs up to the last batch's, `epoch` is the latest that it
    knows, and there it ends at `end_offset`. Returns whether anything was cut.

    If that epoch is not known here, an earlier one decides, and the leader is asked about that next.
    """
    async with log.turn:
        log.require_sound()
        log.require_epoch(leader_epoch)
        own = log.epochs.end_offset_for(epoch, log.end_offset)
        cut = own.start_offset
        if own.start_offset == UNDEFINED_OFFSET:
            cut = end_offset
        elif own.epoch == epoch:
            cut = min(cut, end_offset)
        logger.info(
            "%s parts from its leader after epoch %d, which ends there at offset %d: it is cut from %d to %d",
            log.path,
            epoch,
            end_offset,
            log.end_offset,
            min(cut, log.end_offset),
        )
        return await _truncate(log, cut)


async def meet_leader(log: PartitionLog, first: int, end: int, leader_epoch: int) -> bool:
    """Move to an offset within the leader's log, from `first` to `end`; False if no change is needed."""
    async with log.turn:
        log.require_sound()
        log.require_epoch(leader_epoch)
        own_end = log.end_offset
        if first <= own_end <= end:
            return False
        if own_end > end:
            logger.warning("%s is cut from offset %d to %d, the end of its leader's", log.path, own_end, end)
            await _truncate(log, end)
        else:
            logger.warning(
                "%s ends at %d, its leader's begins at %d: it starts over", log.path, own_end, first
            )
            await _start_over(log, first)
        return True


async def begin_at(log: PartitionLog, offset: int, leader_epoch: int) -> None:
    """Restart an empty log at the beginning of the batch with which the leader's log starts."""
    async with log.turn:
        log.require_sound()
        log.require_epoch(leader_epoch)
        if log.start_offset == log.end_offset:
            await _start_over(log, offset)


async def _truncate(log: PartitionLog, offset: int) -> bool:
    end_offset = log.end_offset
    has_cut = await trimming.truncate(log, offset)
    if has_cut:
        log.home.totals.truncations += 1
        log.home.totals.truncated_records += end_offset - log.end_offset
    return has_cut


async def _start_over(log: PartitionLog, offset: int) -> None:
    await trimming.start_over(log, offset)
    log.home.totals.restarts += 1
