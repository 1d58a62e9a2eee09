"""What a log directory does by itself as time goes by, at Kafka's intervals.

Flushes what is due (sealed segments, `flush.ms`), removes what was deleted a while ago, writes checkpoints,
lets go of what retention no longer covers, and after an unclean stop recovers the partitions that nobody has
touched. A failure of one round is logged and the next one comes; the log concerned has already refused
further appends if it must.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from barnabas.core.clock import Clock
from barnabas.core.errors import StorageError
from barnabas.log.directory import LogDirectory

logger = logging.getLogger("barnabas.log")


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often; the defaults are Kafka's, but for flushes and removals, which Kafka schedules one by one."""

    flush_ms: int = 1000
    sweep_ms: int = 1000
    checkpoint_ms: int = 60_000  # log.flush.offset.checkpoint.interval.ms
    retention_ms: int = 300_000  # log.retention.check.interval.ms


async def keep_house(directory: LogDirectory, clock: Clock, intervals: Intervals | None = None) -> None:
    """Run until cancelled."""
    every = intervals or Intervals()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_repeat(clock, every.flush_ms, directory.flush_due))
        tasks.create_task(_repeat(clock, every.sweep_ms, directory.sweep))
        tasks.create_task(_repeat(clock, every.checkpoint_ms, directory.checkpoint))
        tasks.create_task(_repeat(clock, every.retention_ms, directory.apply_retention))
        if not directory.was_clean:
            tasks.create_task(directory.recover_untouched())


async def _repeat(clock: Clock, interval_ms: int, action: Callable[[], Awaitable[object]]) -> None:
    while True:
        await clock.sleep(interval_ms / 1000)
        try:
            await _carried_through(action)
        except StorageError as error:
            logger.error("housekeeping will try again: %s", error)


async def _carried_through(action: Callable[[], Awaitable[object]]) -> None:
    """Whoever cancels this waits for what has begun: a deletion cut short would leave files in doubt."""
    task = asyncio.ensure_future(action())
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise
