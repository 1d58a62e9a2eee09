"""Periodic work of a log directory, at Kafka's intervals.

Flushes what is due (sealed segments, `flush.ms`), writes index entries that wait in memory, removes files
that were deleted a while ago, writes checkpoints, applies retention, compacts, and after an unclean stop
recovers the partitions that have not been opened yet. A failure of one round is logged and the next one
follows; the log concerned already refuses appends if it must.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError, StorageError
from barnabas.log import names, trimming
from barnabas.log.config import CleanerSettings
from barnabas.log.directory import LogDirectory

logger = logging.getLogger("barnabas.log")

# logs that are checked before other tasks run
LOOKED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Intervals:
    """The intervals; the defaults are Kafka's. Flushes and removals, which Kafka schedules one by one, and
    index entries, which Kafka keeps in mapped memory, are exceptions."""

    flush_ms: int = 1000
    index_ms: int = 1000
    sweep_ms: int = 1000
    checkpoint_ms: int = 60_000  # log.flush.offset.checkpoint.interval.ms
    retention_ms: int = 300_000  # log.retention.check.interval.ms


async def keep_house(
    directory: LogDirectory,
    clock: Clock,
    intervals: Intervals | None = None,
    cleaner: Callable[[], CleanerSettings] | None = None,
) -> None:
    """Run until cancelled. `cleaner` returns the current settings of compaction; None disables it."""
    every = intervals or Intervals()
    works = [
        _repeat(clock, every.flush_ms, partial(flush_due, directory), directory),
        _repeat(clock, every.index_ms, partial(write_index_entries, directory), directory),
        _repeat(clock, every.sweep_ms, directory.removals.sweep, directory),
        _repeat(clock, every.checkpoint_ms, directory.checkpoint, directory),
        _repeat(clock, every.retention_ms, partial(apply_retention, directory), directory),
    ]
    if cleaner is not None:
        works.append(_compact(directory, clock, cleaner))
    if not directory.was_clean:
        works.append(recover_untouched(directory))
    # no TaskGroup: it cancels in the order of a set, which differs between runs
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _compact(directory: LogDirectory, clock: Clock, settings: Callable[[], CleanerSettings]) -> None:
    """Run the cleaner. Its code is loaded when the first topic needs it, not while the node starts."""
    while True:
        await clock.sleep(settings().backoff_ms / 1000)
        from barnabas.log.untouched import compacted

        if await compacted(directory):
            break
    from barnabas.log.compaction.cleaner import Cleaner

    await Cleaner(directory, clock, settings).run()


async def _repeat(
    clock: Clock, interval_ms: int, action: Callable[[], Awaitable[object]], directory: LogDirectory
) -> None:
    while True:
        await clock.sleep(interval_ms / 1000)
        try:
            await carried_through(action)
        except StorageError as error:
            logger.error("housekeeping will try again: %s", error)
            directory.on_trouble(error)


async def carried_through(action: Callable[[], Awaitable[object]]) -> None:
    """Run an action to its end even if this is cancelled, however often: a deletion cut short would leave
    files in doubt, and one that went on alone would find its disk closed."""
    task = asyncio.ensure_future(action())
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("housekeeping was to stop, and could not end what it had begun: %s", error)
        raise


# ---- rounds: an error of one log does not affect the others


async def flush_due(directory: LogDirectory) -> None:
    """Flush sealed segments, and logs whose `flush.ms` has passed."""
    now = directory.clock.monotonic()
    rolled = set(directory.to_flush)
    directory.to_flush.clear()
    for log in list(directory.logs.values()):
        try:
            if (now - log.flushed_at) * 1000 >= log.config.flush_ms:
                await log.flush()
            elif log in rolled and log.segments:  # there is none while a log starts over
                await log.flush(log.active.base_offset)
        except StorageError as error:
            if log.ended is not None:
                continue  # it was closed or deleted meanwhile
            logger.error("cannot flush %s: %s", log.path, error)
            directory.in_trouble(error)
            if log in rolled and log.failure is None:
                directory.to_flush.add(log)


async def write_index_entries(directory: LogDirectory) -> None:
    """Write the index entries that wait in memory, so that tools can read the files of a running node."""
    for number, log in enumerate(list(directory.logs.values()), 1):
        if log.segments and log.segments[-1].has_waiting_entries:
            await log.write_index_entries()
        if number % LOOKED_AT_ONCE == 0:
            await asyncio.sleep(0)


async def apply_retention(directory: LogDirectory) -> int:
    """Delete segments by retention, and files deleted long enough ago; returns the number of segments."""
    await _touch_what_is_due(directory)
    count = 0
    for log in list(directory.logs.values()):
        try:
            if log is not directory.being_cleaned:
                count += await trimming.apply_retention(log)
            log.expire_producers()
        except StorageError as error:
            if log.ended is None:  # otherwise it was closed or deleted meanwhile
                logger.error("cannot apply retention to %s: %s", log.path, error)
                directory.in_trouble(error)
    await directory.removals.sweep()
    return count


async def _touch_what_is_due(directory: LogDirectory) -> None:
    """Open the unopened partitions for which retention is due."""
    from barnabas.log.untouched import may_be_due

    for topic, partition in [key for key in directory.known if key not in directory.logs]:
        try:
            path, config = names.partition_directory(topic, partition), directory.config_of(topic)
            if await may_be_due(directory.disk, path, config, directory.clock.wall_ms()):
                await directory.existing(topic, partition)
        except BarnabasError as error:  # of the disk, or of invalid settings
            logger.error("cannot apply retention to %s-%d: %s", topic, partition, error)
        await asyncio.sleep(0)  # there may be thousands of them


async def recover_untouched(directory: LogDirectory) -> None:
    """After an unclean stop, recover the partitions that have not been opened yet, in the background."""
    for topic, partition in directory.partitions:
        if not directory.was_clean and directory.is_untouched((topic, partition)):
            try:
                await directory.existing(topic, partition)
            except BarnabasError as error:  # of the disk, or of invalid settings
                logger.error("cannot recover %s-%d: %s", topic, partition, error)
