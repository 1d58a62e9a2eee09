"""The checkpoints of a log directory: four files with an offset for every partition, in Kafka's format.

`recovery-point-offset-checkpoint` has the offset up to which each log is synced,
`log-start-offset-checkpoint` its start, `replication-offset-checkpoint` its high watermark, and
`cleaner-offset-checkpoint` the offset up to which it was compacted. A checkpoint never promises more than the
disk holds: it is raised only after a sync, and lowered before a truncation.

Each write takes the offsets of the open logs and keeps the known ones of the others.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping

from barnabas.core.disk import Disk
from barnabas.log import checkpoints, names
from barnabas.log.checkpoints import CorruptCheckpoint, TopicPartition
from barnabas.log.partition import PartitionLog
from barnabas.log.shared_call import SharedCall
from barnabas.log.turn import Turn

logger = logging.getLogger("barnabas.log")


class OffsetCheckpoints:
    """The checkpoints of one directory; `logs` are its open partitions."""

    def __init__(self, disk: Disk, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        self._disk = disk
        self._logs = logs
        self.recovery_points: dict[TopicPartition, int] = {}
        self.start_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaned_offsets: dict[TopicPartition, int] = {}
        self._cleaned_in_file: dict[TopicPartition, int] = {}
        self._watermarks_turn = Turn()
        # recovery points, start offsets, and lowered high watermarks
        self.persist = SharedCall(self._write_offsets)
        self.write_all = SharedCall(self._write_all)
        self.write_cleaned = SharedCall(self._write_cleaned_offsets)

    # --- at a start

    async def load(self, known: Container[TopicPartition]) -> bool:
        """Read all four; False if the recovery points are missing or corrupt."""
        self.start_offsets = await self._read(names.LOG_START_CHECKPOINT, known) or {}
        self.high_watermarks = await self._read(names.REPLICATION_CHECKPOINT, known) or {}
        self.cleaned_offsets = await self._read(names.CLEANER_CHECKPOINT, known) or {}
        self._cleaned_in_file = dict(self.cleaned_offsets)
        recovery_points = await self._read(names.RECOVERY_POINT_CHECKPOINT, known)
        self.recovery_points = recovery_points or {}
        return recovery_points is not None

    async def begin(self) -> None:
        """Write an empty file of recovery points: from now on a missing file means that it was lost."""
        await checkpoints.write_offset_checkpoint(self._disk, names.RECOVERY_POINT_CHECKPOINT, {})

    async def _read(self, name: str, known: Container[TopicPartition]) -> dict[TopicPartition, int] | None:
        """A checkpoint; None if it is missing or corrupt: that costs a scan, not data."""
        if await self._disk.size_of(name) is None:
            return None
        try:
            offsets = await checkpoints.read_offset_checkpoint(self._disk, name)
        except CorruptCheckpoint as problem:
            logger.warning("%s; going on without it", problem)
            return None
        # an entry may outlive its partition, and must not apply to the next one of that name
        kept = {key: offset for key, offset in offsets.items() if key in known}
        if len(kept) < len(offsets):
            await checkpoints.write_offset_checkpoint(self._disk, name, kept)
        return kept

    # --- one partition

    async def lower(self, key: TopicPartition, log: PartitionLog) -> None:
        """Lower checkpoints beyond the end of the log: new records are neither synced nor replicated."""
        if log.recovery_point < self.recovery_points.get(key, 0):
            self.recovery_points[key] = log.recovery_point
            await self.persist()
        if log.high_watermark < self.high_watermarks.get(key, 0):
            self.high_watermarks[key] = log.high_watermark
            await self._write_high_watermarks()
        if log.cleaned_offset is not None and log.cleaned_offset > log.end_offset:
            log.cleaned_offset = self.cleaned_offsets[key] = log.end_offset
            await self.write_cleaned()

    def note(self, key: TopicPartition, closed: PartitionLog) -> None:
        """Take the offsets of a closed log that is about to get that name."""
        self.recovery_points[key] = closed.end_offset
        self.high_watermarks[key] = closed.high_watermark
        if closed.start_offset:
            self.start_offsets[key] = closed.start_offset

    def forget(self, key: TopicPartition) -> None:
        """Forget a partition; the files are written with the next checkpoint."""
        for offsets in (
            self.recovery_points,
            self.start_offsets,
            self.high_watermarks,
            self.cleaned_offsets,
        ):
            offsets.pop(key, None)

    # --- writing

    async def _write_all(self) -> None:
        await self.persist()
        for key, log in self._logs.items():
            self.high_watermarks[key] = log.high_watermark
        await self._write_high_watermarks()

    async def _write_high_watermarks(self) -> None:
        async with self._watermarks_turn:
            await checkpoints.write_offset_checkpoint(
                self._disk, names.REPLICATION_CHECKPOINT, self.high_watermarks
            )

    async def _write_cleaned_offsets(self) -> None:
        for key, log in self._logs.items():
            if log.cleaned_offset is not None:
                self.cleaned_offsets[key] = log.cleaned_offset
        if self.cleaned_offsets != self._cleaned_in_file:
            written = dict(self.cleaned_offsets)
            await checkpoints.write_offset_checkpoint(self._disk, names.CLEANER_CHECKPOINT, written)
            self._cleaned_in_file = written

    async def _write_offsets(self) -> None:
        lowered = {
            key: log.high_watermark
            for key, log in self._logs.items()
            if log.high_watermark < self.high_watermarks.get(key, 0)
        }
        if lowered:
            self.high_watermarks |= lowered
            await self._write_high_watermarks()
        await self.write_cleaned()
        for key, log in self._logs.items():
            self.recovery_points[key] = log.recovery_point
            # while a deleted segment could come back, the start offset must be stored here
            start_offset = max(log.start_offset, log.start_to_be)
            is_told = bool(log.bases) and start_offset <= log.bases[0] and not log.side.names_dirty
            if start_offset and not is_told:
                self.start_offsets[key] = start_offset
            else:
                self.start_offsets.pop(key, None)
        await checkpoints.write_offset_checkpoint(self._disk, names.LOG_START_CHECKPOINT, self.start_offsets)
        await checkpoints.write_offset_checkpoint(
            self._disk, names.RECOVERY_POINT_CHECKPOINT, self.recovery_points
        )
