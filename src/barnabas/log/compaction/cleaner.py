"""The log cleaner of a directory: compacts one log after another, the one with the largest dirty ratio first.

A round checks every compacted log, opened or not, compacts the dirtiest, and checks again; when none is due
it sleeps for `log.cleaner.backoff.ms`. The offset up to which a log was compacted goes into
`cleaner-offset-checkpoint` once the compacted segments are in place: a crash in between costs a second pass.

- Removing a partition's files, or stopping the node, first cancels the compaction in progress, between two
  portions: unfinished files are ignored, and a swap that has begun is completed.
- A log whose compaction fails is skipped until the node restarts, while the others are compacted. A full disk
  is an exception: the log is tried again in a later round.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from barnabas.core.clock import Clock
from barnabas.core.disk import DiskFull, HandleClosed, TooManyOpenFiles
from barnabas.core.errors import BarnabasError, InvariantViolation
from barnabas.log import trimming, untouched
from barnabas.log.checkpoints import TopicPartition
from barnabas.log.compaction.cleaning import CleanerIo, CleanStats, clean
from barnabas.log.compaction.plan import Cleanable, filthiest, is_due
from barnabas.log.compaction.survey import survey
from barnabas.log.compaction.throttle import GivenUp, Throttle
from barnabas.log.config import CleanerSettings, LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import PartitionLog
from barnabas.records.kernel import OffsetMap

logger = logging.getLogger("barnabas.cleaner")

HASH_KEY_BYTES = 16
# the maximum size of one map, as in Kafka
MAX_MAP_BYTES = 2**31 - 1
# settings allow less, with which no batch could be read
MIN_IO_BYTES = 4096
MIN_LOAD_FACTOR, MAX_LOAD_FACTOR = 0.01, 0.99
MIN_BYTES_PER_SECOND = 1.0


class _Due(NamedTuple):
    key: TopicPartition
    log: PartitionLog
    cleanable: Cleanable


class Cleaner:
    """Compacts the logs of a directory. `settings` is called at every step, since settings may change."""

    def __init__(
        self, directory: LogDirectory, clock: Clock, settings: Callable[[], CleanerSettings]
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._totals = directory.totals
        self._settings = settings
        self._throttle = Throttle(clock, lambda: max(MIN_BYTES_PER_SECOND, settings().max_bytes_per_second))
        self._under_way: tuple[TopicPartition, asyncio.Task[None]] | None = None
        # skipped for the rest of this round
        self._put_off: dict[TopicPartition, None] = {}
        # logs whose compaction failed; a new log of the same name may be compacted
        self._uncleanable: dict[TopicPartition, PartitionLog] = {}
        # unopened partitions that are not worth opening under these settings
        self._left_closed: dict[TopicPartition, LogConfig] = {}
        directory.stop_cleaning = self.let_go

    async def run(self) -> None:
        """Run until cancelled; returns when the compaction in progress has been given up or has ended."""
        while True:
            await self.clean_all()
            await self._clock.sleep(self._settings().backoff_ms / 1000)

    async def clean_all(self) -> int:
        """Compact every log that is due; returns the number of compactions."""
        self._put_off.clear()
        self._totals.compaction_rounds += 1
        self._totals.last_round_at = self._clock.monotonic()
        count = 0
        while (due := await self._filthiest()) is not None:
            await self._clean(due)
            count += 1
        return count

    async def let_go(self, key: TopicPartition) -> None:
        """Return when that partition, which is about to be removed, is not being compacted any more."""
        self._uncleanable.pop(key, None)
        self._totals.uncleanable = len(self._uncleanable)
        self._left_closed.pop(key, None)
        if self._under_way is not None and self._under_way[0] == key:
            self._throttle.give_up("the partition is taken away")
            await asyncio.wait((self._under_way[1],))

    # ---- what is due -------------------------------------------------------------------------------------

    async def _filthiest(self) -> _Due | None:
        candidates = []
        for key in await untouched.compacted(self._directory):
            is_open_to_it = key not in self._put_off and key not in self._directory.held_back
            if is_open_to_it and (due := await self._look_at(key)) is not None:
                candidates.append((due, due.cleanable))
            await asyncio.sleep(0)  # there may be thousands of them
        self._totals.dirtiest_ratio = max((dirty.ratio for _, dirty in candidates), default=0.0)
        return filthiest(candidates)

    async def _look_at(self, key: TopicPartition) -> _Due | None:
        log = self._directory.opened(*key) or await self._open_if_dirty(key)
        if log is None or log.failure is not None or self._uncleanable.get(key) is log:
            return None
        try:
            cleanable = await survey(log)
            if cleanable.is_checkpoint_stale:
                await self._reset_checkpoint(log, cleanable.first_dirty_offset)
        except (BarnabasError, HandleClosed) as error:
            self._failed(key, log, error)
            return None
        return _Due(key, log, cleanable) if is_due(cleanable, log.config.min_cleanable_dirty_ratio) else None

    async def _reset_checkpoint(self, log: PartitionLog, offset: int) -> None:
        if "delete" not in log.config.cleanup_policy:  # with delete, retention moves the start often
            logger.info(
                "%s was compacted up to offset %s, which is not in the log; all from %d on counts as dirty",
                log.path,
                log.cleaned_offset,
                offset,
            )
        log.cleaned_offset = offset
        await self._directory.offsets.write_cleaned()

    async def _open_if_dirty(self, key: TopicPartition) -> PartitionLog | None:
        """An unopened partition's log, opened if its file sizes suggest that compaction may be due."""
        try:
            config = self._directory.config_of(key[0])
            if self._left_closed.get(key) is config:
                return None
            self._left_closed[key] = config
            if not await untouched.may_be_dirty(self._directory, key):
                return None
            return await self._directory.existing(*key)
        except BarnabasError as error:  # of the disk, or of invalid settings
            logger.error("cannot open %s-%d to compact it: %s", *key, error)
            return None

    # ---- one compaction ----------------------------------------------------------------------------------

    async def _clean(self, due: _Due) -> None:
        """Compact a log and record the result; its errors do not affect other logs."""
        if self._directory.opened(*due.key) is not due.log:
            return  # it was removed meanwhile
        self._throttle.begin()
        task = asyncio.get_running_loop().create_task(self._clean_and_note(due))
        self._under_way, self._directory.being_cleaned = (due.key, task), due.log
        try:
            await self._ended(task)
        except GivenUp as reason:
            logger.info("the compaction of %s is given up: %s", due.log.path, reason)
            self._put_off[due.key] = None
        except Exception as error:  # noqa: BLE001 - one log in a bad state must not end compaction for all
            self._failed(due.key, due.log, error)
        finally:
            self._under_way = self._directory.being_cleaned = None

    async def _ended(self, task: asyncio.Task[None]) -> None:
        """Wait for a compaction. If this is cancelled, the compaction is given up, and its end is awaited."""
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            self._throttle.give_up("the node stops")
            while not task.done():
                try:
                    await asyncio.wait((task,))
                except asyncio.CancelledError:
                    continue
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, GivenUp):
                logger.error("a compaction ended by an error while the node stopped: %s", error)
            raise

    async def _clean_and_note(self, due: _Due) -> None:
        _, log, cleanable = due
        settings = self._settings()

        async def may_go_on(size_bytes: int) -> None:
            if not log.config.is_compacted:
                self._throttle.give_up("its topic is not compacted any more")
            await self._throttle(size_bytes)

        # a new map each time: untouched memory costs nothing, and none is kept in between
        map_bytes = min(settings.dedupe_buffer_bytes, MAX_MAP_BYTES)
        offsets = OffsetMap(map_bytes, log.home.random.bytes(HASH_KEY_BYTES))
        load_factor = max(MIN_LOAD_FACTOR, min(settings.load_factor, MAX_LOAD_FACTOR))
        io = CleanerIo(max(settings.io_buffer_bytes, MIN_IO_BYTES), load_factor, may_go_on)
        began = self._clock.monotonic()
        cleaned = await clean(log, cleanable, offsets, io=io)
        if cleaned.end_offset <= cleanable.first_dirty_offset:
            self._put_off[due.key] = None  # otherwise this round would not end
        log.cleaned_offset = cleaned.end_offset
        stats = cleaned.stats
        self._count(stats, self._clock.monotonic() - began)
        logger.info(
            "compacted %s up to offset %d, %.1f s: %d of %d records, %d of %d bytes, %d of %d segments stay",
            log.path,
            cleaned.end_offset,
            self._clock.monotonic() - began,
            stats.records_kept,
            stats.records_read,
            stats.bytes_written,
            stats.bytes_read,
            stats.segments_after,
            stats.segments_before,
        )
        await self._directory.offsets.write_cleaned()
        await trimming.apply_retention(log)  # retention skipped the log meanwhile

    def _count(self, stats: CleanStats, seconds: float) -> None:
        totals = self._totals
        totals.compactions += 1
        totals.compaction_seconds += seconds
        totals.last_compaction_seconds = seconds
        totals.compaction_bytes_read += stats.bytes_read
        totals.compaction_bytes_written += stats.bytes_written
        totals.compaction_records_read += stats.records_read
        totals.compaction_records_kept += stats.records_kept

    def _failed(self, key: TopicPartition, log: PartitionLog, error: Exception) -> None:
        is_violation = isinstance(error, InvariantViolation)
        if log.ended is not None and (isinstance(error, HandleClosed) or not is_violation):
            self._put_off[key] = None  # it was closed or removed, which is not its fault
        elif is_violation:
            raise error
        elif isinstance(error, (DiskFull, TooManyOpenFiles, MemoryError)):
            logger.warning("cannot compact %s; it is tried again in the next round: %s", log.path, error)
            self._put_off[key] = None
        else:
            self._uncleanable[key] = log
            self._totals.uncleanable = len(self._uncleanable)
            self._totals.compactions_failed += 1
            logger.error(
                "cannot compact %s: %s; it is left as it is, and grows, until the node starts anew",
                log.path,
                error,
                exc_info=None if isinstance(error, BarnabasError) else error,
            )
