"""A clean stop of many logs at once: all are written out, and one sync makes them durable.

A log that is closed alone syncs each of its files and its directory, about ten calls, of which the file
system can join only a few. Here every log is written out first, without a sync; then the disk syncs
everything; then files that must be whole before they replace others are renamed; and after a second sync the
logs count as flushed, and closing them has nothing left to do. A log that changed in between, or could not be
written out, is closed alone.

A failed sync is a failed flush of every log, since it is unknown what it left unwritten. None of them
advances its recovery point then, and the next start recovers them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from barnabas.core.disk import Disk
from barnabas.core.errors import StorageError
from barnabas.log.partition import PartitionLog

logger = logging.getLogger("barnabas.log")

# For fewer logs, syncing everything that others wrote to the file system is not worth it.
TOGETHER_FROM = 200


async def flush_together(
    disk: Disk, logs: Sequence[PartitionLog], on_failure: Callable[[StorageError], None]
) -> None:
    """Make the logs of one disk durable, if they are many and the disk can sync all its files at once."""
    dirty = [log for log in logs if log.is_dirty and log.failure is None]
    if len(dirty) < TOGETHER_FROM or not disk.can_sync_all:
        return
    written = []
    for log in dirty:
        try:
            state = await log.write_out()
        except StorageError as error:
            logger.warning("%s is closed by itself: %s", log.path, error)
            continue
        if state is not None:
            written.append((log, state))
    try:
        await disk.sync_all()
        written = [(log, state) for log, state in written if await log.put_in_place(state)]
        await disk.sync_all()
    except StorageError as error:
        logger.error("none of %d partitions is closed cleanly: %s", len(written), error)
        for log, _ in written:
            log.failure = log.failure or error
        on_failure(error)
        return
    for log, state in written:
        log.count_as_flushed(state)
