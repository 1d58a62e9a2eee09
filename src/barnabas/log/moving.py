"""The move of a partition from one log directory to another, while it is read and written.

The copy grows beside the original as a follower's log would, batch by batch, in a directory `...-future` of
the target. When it has nearly caught up, appends to the original are blocked for a moment: the rest is
copied, with the state that only the original has (its epochs, its producers), everything is synced, the copy
is renamed, the metadata is updated, and the original's files are removed.

A crash at any point leaves one complete log: if an original and a `-future` copy exist, the original counts,
and the copy is removed at the next start; if two have the final name, the one that the metadata names counts.
Nothing is compacted while it moves: the copy could have the records of a transaction and miss its marker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from barnabas.core.clock import Clock
from barnabas.core.errors import StorageError, wire_error
from barnabas.log import reading, trimming
from barnabas.log.checkpoints import TopicPartition
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import Bound, PartitionLog
from barnabas.records.batch import HEADER_BYTES, BatchHeader

logger = logging.getLogger("barnabas.log")

COPIED_BYTES = 1 << 20


class PartitionMoved(StorageError):
    """The log is in another directory now: the caller should look it up again."""

    wire = wire_error("NOT_LEADER_OR_FOLLOWER")


class Move:
    """One move. `bytes_per_second` returns the current limit of its rate."""

    def __init__(
        self,
        key: TopicPartition,
        source: LogDirectory,
        target: LogDirectory,
        clock: Clock,
        bytes_per_second: Callable[[], float],
    ) -> None:
        self.key = key
        self.source = source
        self.target = target
        self.log: PartitionLog | None = None
        self.copy: PartitionLog | None = None
        self._clock = clock
        self._bytes_per_second = bytes_per_second

    @property
    def lag(self) -> int:
        """The number of offsets that the copy is behind."""
        if self.log is None or self.copy is None:
            return 0
        return max(0, self.log.end_offset - self.copy.end_offset)

    async def copy_most(self) -> None:
        """Copy until the copy is so near to the original that the rest takes only a moment."""
        self.log = log = await self.source.existing(*self.key)
        if log is None:
            raise StorageError(f"{self.key[0]}-{self.key[1]} is not in {self.source.where} any more")
        self.source.held_back[self.key] = None
        await self.source.stop_cleaning(self.key)
        self.copy = copy = await self.target.make_copy(self.key, log)
        if (first_offset := await _first_offset(log)) > copy.end_offset:
            await trimming.truncate_fully_and_start_at(copy, first_offset)
        while (end_offset := log.end_offset) > copy.end_offset:
            copied = await self._copy_some(log, copy)
            await self._clock.sleep(copied / self._bytes_per_second())
            if not copied or copy.end_offset >= end_offset:
                break  # the rest came during this round
        await copy.flush()

    async def _copy_some(self, log: PartitionLog, copy: PartitionLog) -> int:
        """Copy the next batches; returns their size in bytes."""
        self.target.require_open()
        # records that retention has removed meanwhile are skipped
        offset = max(copy.end_offset, log.start_offset)
        fetched = await reading.read(log, offset, COPIED_BYTES, Bound.LOG_END)
        if fetched.range is None:
            return 0
        file, position, size = fetched.range
        data = await file.read(position, size)
        await copy.append_as_follower(bytearray(data))
        return size

    async def switch(
        self, tell: Callable[[], Awaitable[None]], arrived: Callable[[PartitionLog], None]
    ) -> PartitionLog:
        """Replace the original by the copy. `tell` updates the metadata, `arrived` gets the log to use from
        now on. Must not be cancelled. Appends meanwhile fail with a retriable error."""
        log, copy = self.log, self.copy
        assert log is not None
        assert copy is not None
        moved = PartitionMoved(f"{log.path} has moved to {self.target.where}")
        async with log.turn:
            log.require_sound()
            while copy.end_offset < log.end_offset and await self._copy_some(log, copy):
                pass
            log.failure = moved
        try:
            await self._complete(log, copy)
            new = await self.target.adopt(self.key, copy, log)
            try:
                await tell()  # from now on the copy counts
            except BaseException:
                await self.target.discard(self.key, moved)
                raise
        except BaseException:
            if log.failure is moved:
                log.failure = None
            raise
        self.copy = None
        arrived(new)
        await self.source.discard(self.key, moved)
        self.source.held_back.pop(self.key, None)
        logger.info("%s has moved from %s to %s", new.path, self.source.where, self.target.where)
        return new

    async def _complete(self, log: PartitionLog, copy: PartitionLog) -> None:
        self.target.require_open()
        copy.producers = log.producers
        copy.side.forget_snapshot()  # made from the copied batches, it has less than the original's
        copy.end_offset = log.end_offset  # a compaction may have removed the last records before the end
        await copy.roll()  # so that a recovery begins with the snapshot of the present state
        copy.advance_high_watermark(log.high_watermark)
        if log.start_offset > copy.start_offset:
            await trimming.delete_records(copy, log.start_offset)
        copy.epochs.clear()
        for epoch, start_offset in log.epochs.entries:
            copy.epochs.assign(epoch, start_offset)
        copy.epochs_changed()
        await copy.close()

    async def give_up(self) -> None:
        """Keep the original unchanged and remove the copy."""
        self.source.held_back.pop(self.key, None)
        copy, self.copy = self.copy, None
        if copy is not None:
            with suppress(StorageError):
                await self.target.drop_copy(copy)


async def _first_offset(log: PartitionLog) -> int:
    """The base offset of the batch with the start of the log."""
    fetched = await reading.read(log, log.start_offset, 1, Bound.LOG_END)
    if fetched.range is None:
        return log.start_offset
    file, position, _ = fetched.range
    return BatchHeader.parse(await file.read(position, HEADER_BYTES)).base_offset


async def unhurried(work: Awaitable[PartitionLog]) -> PartitionLog:
    """Await work that must not be cancelled; if this is cancelled, it still waits for the end."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        if task.exception() is None:
            return task.result()
        raise
