"""Snapshots of the metadata log: when one is due, how it is written, and which ones it replaces.

A snapshot is due after a number of bytes of records, or a time after the last one if anything was committed
since. It is made from one image, a slice at a time, while commands go on and make new images. It is written
as `.part`, synced and renamed, so that a crash leaves it complete or not at all. Nothing relies on it before
that: until then the log and the earlier snapshots have everything.

The oldest snapshots are removed, and with them the log before the next one, when together they are larger
than metadata.max.retention.bytes or the oldest was made longer than metadata.max.retention.ms ago. So the log
always reaches back to the oldest remaining snapshot, and the newest one is never removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from barnabas.broker.storage.formatting import METADATA_DIRECTORY
from barnabas.core.clock import Clock
from barnabas.core.disk import Disk, File
from barnabas.core.errors import StorageError
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.log import trimming
from barnabas.log.housekeeping import carried_through
from barnabas.log.partition import PartitionLog
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import encode_record
from barnabas.metadata.versions import record_version
from barnabas.protocol.schema import Message
from barnabas.raft.snapshot import PART, SnapshotBuilder, SnapshotId, read_last_contained_ms

logger = logging.getLogger("barnabas.quorum")

# how often the intervals and the retention are checked, as in Kafka
CHECK_SECONDS = 60.0
# encoded in one turn of the loop: about a millisecond
SLICE_RECORDS = 100
# Between two slices the loop must sleep, not only yield: the threads that flush the log get the GIL when the
# loop waits for events. A loop that is always busy releases the GIL so briefly that they miss it, for 70 ms
# at a time (measured: bench/metadata.py).
_PAUSE_SECONDS = 0.001
_WRITE_BYTES = 1 << 20
_HEADER_BYTES = 4096


class SnapshotPolicy(NamedTuple):
    """When a snapshot is due, and how long it is kept; Kafka's defaults."""

    max_bytes: int = 20 << 20
    interval_ms: int = 3_600_000  # 0: only by size
    retention_bytes: int = 100 << 20  # negative: unlimited
    retention_ms: int = 7 * 24 * 3_600_000

    @classmethod
    def of(cls, settings: BrokerSettings) -> SnapshotPolicy:
        return cls(
            settings.integer("metadata.log.max.record.bytes.between.snapshots"),
            settings.integer("metadata.log.max.snapshot.interval.ms"),
            settings.integer("metadata.max.retention.bytes"),
            settings.integer("metadata.max.retention.ms"),
        )


class SnapshotSource(NamedTuple):
    """The content of a snapshot: a committed image, and the quorum's control records up to it."""

    image: ClusterImage
    controls: Sequence[Message]
    last_contained_ms: int

    @property
    def id(self) -> SnapshotId:
        return SnapshotId(self.image.offset, self.image.epoch)


class Snapshots:
    """The snapshots of one metadata log. `keep` runs until the node stops."""

    def __init__(
        self,
        disk: Disk,
        log: PartitionLog,
        clock: Clock,
        policy: SnapshotPolicy,
        moment: Callable[[], SnapshotSource],
        *,
        known: Sequence[SnapshotId],
        uncovered_bytes: int,
    ) -> None:
        """`known` are those on the disk, ascending; `uncovered_bytes` is the size of the log behind the
        newest."""
        self._disk = disk
        self._log = log
        self._clock = clock
        self._policy = policy
        self._moment = moment
        self._known = list(known)
        self._uncovered_bytes = uncovered_bytes
        self._taken_at = clock.monotonic()
        self._wake = asyncio.Event()
        self.turn = asyncio.Lock()  # held while snapshots are made, removed or replaced
        # called with a snapshot and its size, and with the oldest remaining one after others were removed
        self.on_taken: Callable[[SnapshotId, int], None] = lambda snapshot, size_bytes: None
        self.on_trimmed: Callable[[SnapshotId], None] = lambda snapshot: None
        self.count(0)

    @property
    def newest(self) -> SnapshotId | None:
        return self._known[-1] if self._known else None

    def count(self, size_bytes: int) -> None:
        """Count committed bytes of the log."""
        self._uncovered_bytes += size_bytes
        if self._uncovered_bytes >= self._policy.max_bytes:
            self._wake.set()

    def installed(self, snapshot: SnapshotId) -> list[SnapshotId]:
        """A snapshot was fetched, and replaces all others; returns those."""
        replaced = [each for each in self._known if each != snapshot]
        self._known = [snapshot]
        self._uncovered_bytes = 0
        self._taken_at = self._clock.monotonic()
        return replaced

    @property
    def is_due(self) -> bool:
        if self._uncovered_bytes >= self._policy.max_bytes:
            return True
        waited_ms = (self._clock.monotonic() - self._taken_at) * 1000
        return 0 < self._policy.interval_ms <= waited_ms and self._uncovered_bytes > 0

    async def keep(self) -> None:
        """Take snapshots that are due and remove old ones, until cancelled."""
        while True:
            await self._wait()
            try:
                async with self.turn:
                    if self.is_due:
                        await self.take()
                    await carried_through(self.clean)
            except StorageError as error:
                logger.error("no snapshot of the metadata, it will be tried again: %s", error)

    async def _wait(self) -> None:
        """Wait for the next check, or until a snapshot is due by size."""
        alarm = asyncio.ensure_future(self._alarm())
        try:
            await self._wake.wait()
        finally:
            alarm.cancel()
            self._wake.clear()

    async def _alarm(self) -> None:
        await self._clock.sleep(CHECK_SECONDS)
        self._wake.set()

    async def take(self) -> SnapshotId | None:
        """Write a snapshot of what is committed now; None if the newest one covers it."""
        moment = self._moment()
        covered_bytes = self._uncovered_bytes
        if self._known and moment.id <= self._known[-1]:
            return None
        path = f"{METADATA_DIRECTORY}/{moment.id.name}"
        file = await self._disk.open(path + PART, create=True)
        try:
            if file.size:
                await file.truncate(0)
            await self._write(file, moment)
            size_bytes = file.size
            await file.sync()
            await file.rename(path)
        except StorageError:
            await self._discard(path + PART)
            raise
        finally:
            file.close()
        await self._disk.sync_dir(METADATA_DIRECTORY)
        self._known.append(moment.id)
        self.on_taken(moment.id, size_bytes)
        self._uncovered_bytes -= covered_bytes
        self._taken_at = self._clock.monotonic()
        logger.info("took a snapshot of the metadata: %s", self._disk.describe(path))
        return moment.id

    async def _write(self, file: File, moment: SnapshotSource) -> None:
        builder = SnapshotBuilder(
            self._clock.wall_ms(), last_contained_ms=moment.last_contained_ms, epoch=moment.id.epoch
        )
        from barnabas.metadata.snapshot_records import snapshot_records  # the first one is an hour away

        metadata_version = moment.image.metadata_version
        records = snapshot_records(moment.image)
        pending = bytearray(builder.begin(moment.controls))
        while part := list(islice(records, SLICE_RECORDS)):
            pending += builder.add(
                encode_record(record, record_version(type(record), metadata_version)) for record in part
            )
            if len(pending) >= _WRITE_BYTES:
                await file.append(pending)
                pending = bytearray()
            if len(part) == SLICE_RECORDS:
                await asyncio.sleep(_PAUSE_SECONDS)
        await file.append(pending + builder.end())

    async def _discard(self, path: str) -> None:
        try:
            await self._disk.remove(path)
        except StorageError as error:
            logger.warning("an unfinished snapshot stays until the next start: %s", error)

    async def clean(self) -> int:
        """Remove snapshots beyond the retention; returns how many."""
        gone = 0
        while len(self._known) > 1:
            oldest, next_oldest = self._known[:2]
            # after a start, the node may not know yet that so much is committed
            if next_oldest.end_offset > self._log.high_watermark or not await self._oldest_may_go():
                break
            # first move the start of the log, then remove files that are no longer needed
            await trimming.delete_records(self._log, next_oldest.end_offset)
            await self._disk.remove(f"{METADATA_DIRECTORY}/{oldest.name}")
            del self._known[0]
            self.on_trimmed(next_oldest)
            gone += 1
        if gone:
            await trimming.apply_retention(self._log)
        return gone

    async def _oldest_may_go(self) -> bool:
        policy = self._policy
        if policy.retention_bytes >= 0 and await self._size_bytes() > policy.retention_bytes:
            return True
        if policy.retention_ms < 0:
            return False
        made_ms = await self._made_ms(self._known[0])
        return made_ms >= 0 and self._clock.wall_ms() - made_ms > policy.retention_ms

    async def _size_bytes(self) -> int:
        """The size of all snapshots, and of the log behind the oldest."""
        size = 0
        for index, each in enumerate(self._log.segments):
            is_last = index + 1 == len(self._log.segments)
            if is_last or self._log.bases[index + 1] > self._log.start_offset:
                await each.ready()
                size += each.size_bytes
        for each_id in self._known:
            size += await self._disk.size_of(f"{METADATA_DIRECTORY}/{each_id.name}") or 0
        return size

    async def _made_ms(self, snapshot: SnapshotId) -> int:
        file = await self._disk.open(f"{METADATA_DIRECTORY}/{snapshot.name}")
        try:
            return read_last_contained_ms(await file.read(0, _HEADER_BYTES))
        finally:
            file.close()
