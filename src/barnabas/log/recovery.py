"""Opening a partition: from the files of a clean stop or a crash to a log that can be used.

After a clean stop, little more is read than the names of the files, the last index entries and the headers
after them. After a crash, the segments that reach past the recovery point are read whole: a torn tail is cut,
and their indexes, their aborted transactions and the producers' state are rebuilt, because none of it was
synced. Anything else that is missing or corrupt (an index, a snapshot, the epochs) is rebuilt from the
batches, with a log line that names it and the reason. Batches below the recovery point were synced: if these
are corrupt, the cause is something else, and the partition is not opened rather than cut.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from barnabas.core.disk import Disk
from barnabas.core.errors import StorageError
from barnabas.log import names, snapshots
from barnabas.log.checkpoints import CorruptCheckpoint, read_leader_epochs, write_leader_epochs
from barnabas.log.config import LogConfig
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.leftovers import tidy
from barnabas.log.markers import aborted_entry, apply_marker
from barnabas.log.partition import Home, PartitionLog, new_segment
from barnabas.log.producers import CompletedTransaction, ProducerStates
from barnabas.log.segment import MAX_RELATIVE_OFFSET, CorruptSegment, Segment
from barnabas.log.snapshots import CorruptSnapshot
from barnabas.log.txn_index import CorruptTransactionIndex
from barnabas.records.batch import NO_PRODUCER_ID, BatchHeader
from barnabas.records.control import parse_end_transaction

logger = logging.getLogger("barnabas.log")

# how much of the log's tail is searched for batches that producers might send again
REFILL_BYTES = 4 << 20


async def open_partition(
    home: Home,
    path: str,
    config: LogConfig,
    *,
    is_clean: bool,
    recovery_point: int | None,
    cleaned_offset: int = 0,
    start_offset: int = 0,
    topic_id: UUID | None = None,
) -> PartitionLog:
    """The log in directory `path`, created if needed; the offsets are those of the last checkpoints.

    If the recovery point is unknown (None) everything is read, but a gap between segments is accepted: it may
    be the result of compaction rather than a lost segment.
    """
    disk = home.disk
    bases = await tidy(disk, path, start_offset)
    is_new = not bases
    if is_new:
        await disk.mkdir(path)
    segments = [new_segment(home, path, config, base) for base in bases]
    epochs, epochs_known = await _read_epochs(disk, path, is_expected=bool(recovery_point))
    unsynced = len(segments) if is_clean else _first_unsynced(segments, recovery_point or 0)
    damaged = await _first_damaged(segments[:unsynced])
    synced_point = None if is_clean else recovery_point or 0
    if damaged is not None:
        unsynced, synced_point = damaged, segments[damaged].base_offset
    is_sound = unsynced == len(segments) and not is_new
    if is_sound:
        tail = await segments[-1].tail()
        end_offset = tail[-1].next_offset if tail else segments[-1].base_offset
        producers, snapshot_offset = await load_producers(disk, path, segments, end_offset)
    else:
        recovery = _Recovery(home, path, config, segments, epochs, recovery_point, cleaned_offset, unsynced)
        end_offset = await recovery.run()
        producers, snapshot_offset = recovery.producers, recovery.snapshot_offset
    if max(end_offset, start_offset) < (recovery_point or 0):  # those before the start may be deleted
        logger.error(
            "%s ends at offset %d, but everything below %d had been synced: data was lost on the way",
            path,
            end_offset,
            recovery_point,
        )
    if not segments or end_offset < start_offset:
        await _forget(disk, path, segments, epochs)
        segments, end_offset = await _begin_at(home, path, config, max(start_offset, end_offset))
        producers, snapshot_offset = ProducerStates(end_offset), end_offset
    start_offset = max(start_offset, segments[0].base_offset)
    if not epochs_known:
        await _rebuild_epochs(segments, epochs)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    await refill(segments, producers)
    return PartitionLog(
        home,
        path,
        config,
        segments=segments,
        start_offset=start_offset,
        end_offset=end_offset,
        recovery_point=end_offset if synced_point is None else min(synced_point, end_offset),
        epochs=epochs,
        producers=producers,
        snapshot_offset=snapshot_offset,
        topic_id=topic_id,
        is_dirty=not (is_sound and epochs_known),
    )


async def _forget(disk: Disk, path: str, segments: Sequence[Segment], epochs: LeaderEpochs) -> None:
    """Remove the segments, epochs and producers of a log of which nothing is left."""
    if segments:
        logger.warning("%s ends before its start offset; it goes on, empty, from there", path)
        await _remove(disk, path, segments)
    await remove_snapshots(disk, path)
    if epochs.clear():
        await write_leader_epochs(disk, f"{path}/{names.LEADER_EPOCH_CHECKPOINT}", ())


async def _begin_at(home: Home, path: str, config: LogConfig, offset: int) -> tuple[list[Segment], int]:
    """An empty log that continues at `offset`."""
    segment = new_segment(home, path, config, offset)
    await segment.create()
    await segment.create_indexes()
    return [segment], offset


async def remove_snapshots(disk: Disk, path: str) -> None:
    """Remove the producer snapshots of a log of which nothing is left."""
    for name in await disk.listdir(path):
        if names.parse_offset(name, names.SNAPSHOT) is not None:
            await disk.remove(f"{path}/{name}")


async def _remove(disk: Disk, path: str, segments: Sequence[Segment]) -> None:
    """Remove segments for good, the last one first, so that no hole can be left."""
    for segment in reversed(segments):
        segment.close()
        for suffix in (names.LOG, names.INDEX, names.TIME_INDEX, names.TXN_INDEX):
            await disk.remove(segment.path(suffix))
        await disk.sync_dir(path)


async def _first_damaged(segments: Sequence[Segment]) -> int | None:
    """The first segment with a corrupt transaction index: the index follows from all batches since."""
    for index, segment in enumerate(segments):
        try:
            await segment.aborted.check()
        except CorruptTransactionIndex as problem:
            logger.warning("%s; reading %s again from there", problem, segment.describe())
            return index
    return None


def _first_unsynced(segments: Sequence[Segment], recovery_point: int) -> int:
    """The first segment that reaches past the recovery point; the last one is always included."""
    for index in range(len(segments) - 1):
        if segments[index + 1].base_offset > recovery_point:
            return index
    return max(0, len(segments) - 1)


class _Recovery:
    """The pass over the segments that were not synced when the node stopped."""

    def __init__(
        self,
        home: Home,
        path: str,
        config: LogConfig,
        segments: list[Segment],
        epochs: LeaderEpochs,
        recovery_point: int | None,
        cleaned_offset: int,
        first: int,
    ) -> None:
        self._home = home
        self._path = path
        self._segments = segments
        self._epochs = epochs
        self._recovery_point = recovery_point or 0
        self._is_compacted = config.is_compacted
        self._cleaned_offset = cleaned_offset
        self._gaps_are_plausible = recovery_point is None
        self._first = first
        self._next_offset = 0
        self._has_gaps = False  # in the segment that was read last
        self.producers = ProducerStates()
        self.snapshot_offset = 0

    async def run(self) -> int:
        """Scan, cut and rebuild; returns the end of the log."""
        if not self._segments:
            return 0
        base_offset = self._segments[self._first].base_offset
        self.producers, self.snapshot_offset = await load_producers(
            self._home.disk, self._path, self._segments[: self._first], base_offset
        )
        self._epochs.truncate_from_end(base_offset)
        self._next_offset = base_offset
        for index in range(self._first, len(self._segments)):
            if not await self._recover(index):
                await self._drop_after(index)
                break
        await self._settle(self._segments[-1])
        return self._next_offset

    async def _settle(self, segment: Segment) -> None:
        """Sync the segment. A truncation may have been interrupted: records that are cut now must not be back
        after the next crash, after those that are appended until then."""
        try:
            await segment.sync(sealed=False)
        except StorageError as error:
            # it can still be read, and appended to; making that durable will fail in turn
            logger.error("%s", error)

    async def _recover(self, index: int) -> bool:
        """Scan one segment; False if the log ends in it, or before it."""
        segment = self._segments[index]
        is_last = index + 1 == len(self._segments)
        if segment.base_offset != self._next_offset:
            if not self._may_be_a_gap(segment):
                logger.warning(
                    "%s begins at %d, where %d should follow: what stood between was never synced",
                    segment.describe(),
                    segment.base_offset,
                    self._next_offset,
                )
                await self._drop_after(index - 1)
                return False
            self._next_offset = segment.base_offset
        if self._next_offset > self.snapshot_offset:
            await self._write_snapshot()
        problem = await self._scan(segment)
        if not is_last:
            await segment.seal()
        return problem is None

    def _may_be_a_gap(self, segment: Segment) -> bool:
        """Whether the gap between the last batch and this segment is plausible: compaction removed the
        records, or a leader's offsets jumped so far that they began a segment of their own.

        Compaction here only rewrites what is below the recovery point. Apache Kafka's may be ahead of its
        checkpoints: there, the batches before the gap must show signs of compaction.
        """
        if self._gaps_are_plausible or segment.base_offset - self._next_offset > MAX_RELATIVE_OFFSET // 2:
            return True
        if self._is_compacted and (
            self._has_gaps or self._next_offset < max(self._recovery_point, self._cleaned_offset)
        ):
            return True
        if self._next_offset < self._recovery_point:
            raise CorruptSegment(
                f"{segment.describe()} begins with offset {segment.base_offset}, where {self._next_offset} "
                f"should follow. All below offset {self._recovery_point} had been synced, so a segment, "
                "or the end of one, is missing; nothing was cut: restore it from a copy or a replica"
            )
        return False

    async def _write_snapshot(self) -> None:
        path = f"{self._path}/{names.offset_name(self._next_offset)}{names.SNAPSHOT}"
        await snapshots.write_snapshot(self._home.disk, path, self.producers.entries(), sync=False)
        self.snapshot_offset = self._next_offset

    async def _scan(self, segment: Segment) -> str | None:
        """Rebuild the files beside a segment; cut it at the first faulty batch and return the fault."""
        await segment.begin_rebuild()
        await segment.aborted.reset()
        self._has_gaps = False
        scan = await segment.scan(verify=True)
        position = 0
        while headers := await scan.run():
            sound, problem = self._in_order(segment, headers)
            for completed in await replay(segment, sound, position, self.producers):
                if completed.aborted:
                    await segment.aborted.append(aborted_entry(completed))
            position = await segment.reindex(sound, position)
            if problem is not None:
                break
        else:
            problem = scan.problem
        if problem is not None:
            await self._cut(segment, position, problem)
        return problem

    def _in_order(self, segment: Segment, headers: list[BatchHeader]) -> tuple[list[BatchHeader], str | None]:
        """The batches up to the first whose offset goes back: its bytes are left over from an older write.

        Also notes the epochs of the batches returned.
        """
        next_offset, problem = self._next_offset, None
        latest_epoch = self._epochs.latest_epoch
        epoch = -1 if latest_epoch is None else latest_epoch
        end_offset = segment.base_offset + MAX_RELATIVE_OFFSET
        for index, header in enumerate(headers):
            base_offset, last_offset = header.base_offset, header.base_offset + header.last_offset_delta
            if base_offset < next_offset or last_offset > end_offset:
                problem = f"offset {base_offset} stands where {next_offset} should follow"
                headers = headers[:index]
                break
            if header.leader_epoch > epoch:
                epoch = header.leader_epoch
                self._epochs.assign(epoch, base_offset)
            if base_offset > next_offset or header.record_count <= header.last_offset_delta:
                self._has_gaps = True
            next_offset = last_offset + 1
        self._next_offset = next_offset
        return headers, problem

    async def _cut(self, segment: Segment, position: int, problem: str) -> None:
        if self._next_offset < self._recovery_point:
            raise CorruptSegment(
                f"{segment.describe()} is corrupt at byte {position}, offset {self._next_offset}: {problem}. "
                f"Everything below offset {self._recovery_point} had been synced, so this is no torn write, "
                "and nothing was cut: restore the file from a copy or a replica; to give up what follows, "
                f"truncate it to {position} bytes, remove the later segments and the line of this partition "
                f"in {names.RECOVERY_POINT_CHECKPOINT}"
            )
        file = await segment.file()
        logger.warning(
            "cutting %s from %d to %d bytes, at offset %d: %s",
            segment.describe(),
            file.size,
            position,
            self._next_offset,
            problem,
        )
        segment.size_bytes = position
        await file.truncate(position)
        await file.sync()

    async def _drop_after(self, index: int) -> None:
        later = self._segments[index + 1 :]
        for segment in later:
            logger.warning(
                "removing %s: it was not synced, and what came before it is gone", segment.describe()
            )
        await _remove(self._home.disk, self._path, later)
        del self._segments[index + 1 :]


async def replay(
    segment: Segment, headers: Sequence[BatchHeader], position: int, producers: ProducerStates
) -> list[CompletedTransaction]:
    """Apply batches at `position` to the producers' state; returns the transactions that they ended."""
    ended: list[CompletedTransaction] = []
    if not any(header.producer_id != NO_PRODUCER_ID for header in headers):
        return ended
    for header in headers:
        if header.is_control:
            data = await (await segment.file()).read(position, header.size_bytes)
            marker = parse_end_transaction(data, 0, header)
            completed = apply_marker(producers, header, marker) if marker is not None else None
            if completed is not None:
                ended.append(completed)
        elif header.producer_id != NO_PRODUCER_ID:
            producers.apply(header, header.base_offset)
        position += header.size_bytes
    return ended


async def load_producers(
    disk: Disk, path: str, segments: Sequence[Segment], end_offset: int
) -> tuple[ProducerStates, int]:
    """The producers' state at `end_offset`, from the newest snapshot before it and the batches since.

    Snapshots beyond the end describe records that no longer exist, and those before the first segment cannot
    be brought up to date; they are removed. Returns the state and the offset of the snapshot it was made
    from.
    """
    start_offset = segments[0].base_offset if segments else end_offset
    producers = ProducerStates(start_offset)
    snapshot_offset = 0
    # a snapshot exactly at the end is the best one, wherever the next segment begins
    bases = {end_offset, *(segment.base_offset for segment in segments)}
    for offset in reversed(await _snapshots(disk, path, bases)):
        file = f"{path}/{names.offset_name(offset)}{names.SNAPSHOT}"
        if not start_offset <= offset <= end_offset:
            await disk.remove(file)
            continue
        try:
            producers.load(await snapshots.read_snapshot(disk, file), offset)
        except CorruptSnapshot as problem:
            logger.warning("%s", problem)
            await disk.remove(file)
            continue
        snapshot_offset = offset
        break
    await _catch_up(segments, producers, end_offset)
    return producers, snapshot_offset


async def _snapshots(disk: Disk, path: str, bases: set[int]) -> list[int]:
    """The offsets of the snapshots; those without a segment are removed, except for the newest."""
    listed = [names.parse_offset(name, names.SNAPSHOT) for name in await disk.listdir(path)]
    offsets = [offset for offset in listed if offset is not None]
    for offset in offsets[:-1]:
        if offset not in bases:
            await disk.remove(f"{path}/{names.offset_name(offset)}{names.SNAPSHOT}")
    return [offset for offset in offsets if offset in bases or offset == offsets[-1]]


async def _catch_up(segments: Sequence[Segment], producers: ProducerStates, end_offset: int) -> None:
    """Replay the batches from the end of the state to `end_offset`."""
    start = producers.map_end_offset
    for index, segment in enumerate(segments):
        is_before = index + 1 < len(segments) and segments[index + 1].base_offset <= start
        if is_before or start >= end_offset:
            continue
        located = await segment.locate(start)
        if located is None:
            continue
        scan = await segment.scan(located.position)
        position = scan.position
        while headers := await scan.run():
            await replay(
                segment,
                [header for header in headers if header.base_offset < end_offset],
                position,
                producers,
            )
            position = scan.position
        scan.require_end()
    producers.map_end_offset = max(producers.map_end_offset, end_offset)


async def refill(segments: Sequence[Segment], producers: ProducerStates) -> None:
    """Restore the last batches of each producer in its window: a snapshot has only one of them."""
    if not len(producers):
        return
    left = REFILL_BYTES
    for segment in reversed(segments):
        await segment.ready()
        start = 0
        if segment.size_bytes > left:
            entry = await segment.offsets.ceiling(segment.size_bytes - left, column=1)
            start = segment.size_bytes if entry is None else entry[1]
        scan = await segment.scan(start)
        while headers := await scan.run():
            for header in headers:
                producers.remember(header)
        left -= segment.size_bytes
        if left <= 0:
            break


async def _read_epochs(disk: Disk, path: str, *, is_expected: bool) -> tuple[LeaderEpochs, bool]:
    """The epochs, and whether their file was present and valid."""
    file = f"{path}/{names.LEADER_EPOCH_CHECKPOINT}"
    try:
        if await disk.size_of(file) is None:
            if is_expected:
                logger.warning(
                    "%s is missing; rebuilding the leader epochs from the batches", disk.describe(file)
                )
            return LeaderEpochs(), False
        return LeaderEpochs(await read_leader_epochs(disk, file)), True
    except CorruptCheckpoint as problem:
        logger.warning("%s; rebuilding the leader epochs from the batches", problem)
        return LeaderEpochs(), False


async def _rebuild_epochs(segments: Sequence[Segment], epochs: LeaderEpochs) -> None:
    epochs.clear()
    latest = -1
    for segment in segments:
        scan = await segment.scan()
        while headers := await scan.run():
            for header in headers:
                if header.leader_epoch > latest:
                    latest = header.leader_epoch
                    epochs.assign(latest, header.base_offset)
        scan.require_end()
