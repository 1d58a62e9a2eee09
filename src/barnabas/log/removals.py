"""Deleted files of a log directory that wait for their removal (`file.delete.delay.ms`).

A deleted partition is a renamed directory. A deleted segment is in its log's list (`doomed`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from barnabas.core.clock import Clock
from barnabas.core.disk import Disk
from barnabas.core.errors import StorageError
from barnabas.log import trimming
from barnabas.log.checkpoints import TopicPartition
from barnabas.log.partition import PartitionLog
from barnabas.log.shared_call import SharedCall

logger = logging.getLogger("barnabas.log")


class Removals:
    """The pending removals of one directory; `logs` are its open partitions."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        logs: Mapping[TopicPartition, PartitionLog],
        in_trouble: Callable[[StorageError], None],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._logs = logs
        self._in_trouble = in_trouble
        self._doomed: list[tuple[float, str]] = []
        # removes everything that is due
        self.sweep = SharedCall(self._sweep)

    def add(self, name: str) -> None:
        """Remove a directory with the next sweep."""
        self._doomed.append((0.0, name))

    def add_later(self, name: str, delay_ms: int) -> None:
        """Remove a directory after the delay."""
        self._doomed.append((self._clock.monotonic() + delay_ms / 1000, name))

    async def _sweep(self) -> None:
        for log in [log for log in self._logs.values() if log.doomed]:
            try:
                await trimming.sweep(log)
            except StorageError as error:
                logger.error("cannot remove deleted segments of %s: %s", log.path, error)
                self._in_trouble(error)
        now = self._clock.monotonic()
        for due_at, name in self._doomed:
            if due_at <= now:
                await self._disk.remove_tree(name)
                self._doomed = [other for other in self._doomed if other[1] != name]
