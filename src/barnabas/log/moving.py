"""A partition on its way from one log directory to another, while it is read and written.

The copy grows beside the original as a follower's log would, batch by batch, in a directory `...-future` of
the target. When it has nearly caught up the original takes no more appends for a moment; the rest is copied,
with what only the original knows (its epochs, the producers' state), everything synced, the copy given its
name, the metadata told, and the original's files go.

Wherever a crash comes, one whole log is left: an original beside a `-future` copy counts, and the copy goes
at the next start; of two that bear the name, that one counts which the metadata names.
Nothing is compacted while it moves: of a transaction, the copy could have the records and miss the marker.
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
    """The log is in another directory now: whoever asks again finds it."""

    wire = wire_error("NOT_LEADER_OR_FOLLOWER")


class Move:
    """One move. `bytes_per_second` bounds the copying, as it is at the time."""

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
        """How many offsets the copy is behind."""
        if self.log is None or self.copy is None:
            return 0
        return max(0, self.log.end_offset - self.copy.end_offset)

    async def copy_most(self) -> None:
        """Bring the copy so near to the original that the rest is a matter of a moment."""
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
                break  # nothing is left but what came during this round
        await copy.flush()

    async def _copy_some(self, log: PartitionLog, copy: PartitionLog) -> int:
        """Copy the next batches; how many bytes that were."""
        self.target.require_open()
        # what retention has taken meanwhile is not missed
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
        """Put the copy in the place of the original; `tell` has the metadata name the target, `arrived` is
        given the log to use from now on. Must not be cancelled. Whoever appends meanwhile is told to ask
        again."""
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
                await tell()  # from now on it is the copy that counts
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
        copy.side.forget_snapshot()  # it was of producers as the copied batches tell of them, which is less
        copy.end_offset = log.end_offset  # a compaction may have left nothing of what stood before the end
        await copy.roll()  # so that a recovery begins with what is noted of them now
        copy.advance_high_watermark(log.high_watermark)
        if log.start_offset > copy.start_offset:
            await trimming.delete_records(copy, log.start_offset)
        copy.epochs.clear()
        for epoch, start_offset in log.epochs.entries:
            copy.epochs.assign(epoch, start_offset)
        copy.epochs_changed()
        await copy.close()

    async def give_up(self) -> None:
        """Leave the original as it is, and nothing of the copy."""
        self.source.held_back.pop(self.key, None)
        copy, self.copy = self.copy, None
        if copy is not None:
            with suppress(StorageError):
                await self.target.drop_copy(copy)


async def _first_offset(log: PartitionLog) -> int:
    """Where the batch begins in which the log starts."""
    fetched = await reading.read(log, log.start_offset, 1, Bound.LOG_END)
    if fetched.range is None:
        return log.start_offset
    file, position, _ = fetched.range
    return BatchHeader.parse(await file.read(position, HEADER_BYTES)).base_offset


async def unhurried(work: Awaitable[PartitionLog]) -> PartitionLog:
    """Await something that must not be cancelled; who cancels this waits for its end."""
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
