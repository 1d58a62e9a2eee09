"""What a log directory does by itself as time goes by, at Kafka's intervals.

Flushes what is due (sealed segments, `flush.ms`), removes what was deleted a while ago, writes checkpoints,
lets go of what retention no longer covers, compacts what is dirty, and after an unclean stop recovers the
partitions that nobody has touched. A failure of one round is logged and the next one comes; the log concerned
has already refused further appends if it must.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from barnabas.core.clock import Clock
from barnabas.core.errors import StorageError
from barnabas.log.config import CleanerSettings
from barnabas.log.directory import LogDirectory

logger = logging.getLogger("barnabas.log")


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often; the defaults are Kafka's, but for flushes and removals, which Kafka schedules one by one."""

    flush_ms: int = 1000
    sweep_ms: int = 1000
    checkpoint_ms: int = 60_000  # log.flush.offset.checkpoint.interval.ms
    retention_ms: int = 300_000  # log.retention.check.interval.ms


async def keep_house(
    directory: LogDirectory,
    clock: Clock,
    intervals: Intervals | None = None,
    cleaner: Callable[[], CleanerSettings] | None = None,
) -> None:
    """Run until cancelled. `cleaner` says how logs are compacted, as it is now; None where they are not."""
    every = intervals or Intervals()
    works = [
        _repeat(clock, every.flush_ms, directory.flush_due, directory),
        _repeat(clock, every.sweep_ms, directory.sweep, directory),
        _repeat(clock, every.checkpoint_ms, directory.checkpoint, directory),
        _repeat(clock, every.retention_ms, directory.apply_retention, directory),
    ]
    if cleaner is not None:
        works.append(_compact(directory, clock, cleaner))
    if not directory.was_clean:
        works.append(directory.recover_untouched())
    # no TaskGroup: it cancels in the order of a set, which is another one in every run
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _compact(directory: LogDirectory, clock: Clock, settings: Callable[[], CleanerSettings]) -> None:
    """What compacts is loaded when there is first a topic for it, and not while the node starts."""
    while True:
        await clock.sleep(settings().backoff_ms / 1000)
        if await directory.compacted():
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
    """Whoever cancels this, however often, waits for what has begun: a deletion cut short would leave files
    in doubt, and one that goes on would find its disk closed."""
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
