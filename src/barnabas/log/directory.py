"""A log directory: the partitions on one disk, their checkpoints, and what keeps them in order.

A partition is opened when it is first touched; until then it costs a name in a dictionary. The directory
is locked against other nodes. `.kafka_cleanshutdown` says that the last stop was clean: it is believed once,
and removed, durably, before anything is written.

The checkpoints (`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
`replication-offset-checkpoint`, `cleaner-offset-checkpoint`) are of the directory as a whole, in Kafka's
format. A checkpoint never promises more than the disk holds: offsets go up in it only after a sync, and down
before a cut.

A node with several directories has one of these for each (`directories.py`). One whose disk has failed is
given up: it refuses everything, for that reason, and lets go of its files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

from barnabas.core.clock import Clock
from barnabas.core.disk import Disk
from barnabas.core.errors import (
    BarnabasError,
    InconsistentTopicId,
    StorageError,
    wire_error,
)
from barnabas.core.random import Random
from barnabas.core.workers import Workers
from barnabas.log import checkpoints, names, trimming
from barnabas.log.checkpoints import CorruptCheckpoint, TopicPartition
from barnabas.log.config import LogConfig
from barnabas.log.names import DirectoryKind
from barnabas.log.partition import Home, LogClosed, PartitionLog
from barnabas.log.recovery import open_partition
from barnabas.log.shared_call import SharedCall
from barnabas.log.totals import LogTotals
from barnabas.log.turn import Turn
from barnabas.log.untouched import may_be_dirty, may_be_due
from barnabas.records import kernel

logger = logging.getLogger("barnabas.log")

CLOSED_AT_ONCE = 32
# partitions whose settings are looked at before others get a turn
LOOKED_AT_ONCE = 200


class PartitionDeleted(StorageError):
    """The partition was deleted while something still used its log."""

    wire = wire_error("UNKNOWN_TOPIC_OR_PARTITION")


class LogDirectory:
    """The partitions of one disk. Made by `open`; `close` leaves a clean stop behind."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        random: Random,
        workers: Workers,
        config: LogConfig,
        on_failure: Callable[[StorageError], None],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._random = random
        self._config = config
        # the settings of partitions that are opened without any, as those are that nobody has touched
        self.config_of: Callable[[str], LogConfig] = lambda topic: config
        # the log that is being compacted, whose segments retention leaves alone meanwhile; and what has it
        # let go of, before its files are taken away
        self.being_cleaned: PartitionLog | None = None
        self.stop_cleaning: Callable[[TopicPartition], Awaitable[None]] = _nobody_cleans
        # what is on its way to another directory, and not compacted meanwhile
        self.held_back: dict[TopicPartition, None] = {}
        # the copies of such that a stop has left unfinished here, with the names of their directories
        self.unfinished: list[tuple[TopicPartition, str]] = []
        # told of errors that say that the disk is failing, though no file is in doubt because of them
        self.on_trouble: Callable[[StorageError], None] = _nobody_minds
        self.totals = LogTotals()
        self._is_clean = False
        # why nothing can be opened here any more
        self._closed: StorageError | None = None
        self._release: Callable[[], None] = lambda: None
        self._known: dict[TopicPartition, None] = {}
        # written to since the start, and let go of by a deletion that failed
        self._left_open: set[TopicPartition] = set()
        self._logs: dict[TopicPartition, PartitionLog] = {}
        # who opens or deletes a partition; one for every name that was ever touched
        self._turns: dict[TopicPartition, Turn] = {}
        self._recovery_points: dict[TopicPartition, int] = {}
        self._recovery_points_known = True
        self.stopped_epoch: int | None = None  # of the broker that stopped cleanly here
        self._start_offsets: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._watermarks_turn = Turn()
        self._cleaned_offsets: dict[TopicPartition, int] = {}
        self._cleaned_in_file: dict[TopicPartition, int] = {}
        self._doomed: list[tuple[float, str]] = []
        self._to_flush: set[PartitionLog] = set()
        self._persist = SharedCall(self._write_offsets)
        self._checkpoint = SharedCall(self._write_checkpoints)
        self._persist_cleaned = SharedCall(self._write_cleaned_offsets)
        self._sweep = SharedCall(self._sweep_once)
        self._sync_names = SharedCall(partial(disk.sync_dir, ""))
        self._home = Home(
            disk,
            clock,
            random,
            workers,
            self._persist,
            self._to_flush.add,
            on_failure,
            self._in_trouble,
            self.totals,
        )

    @classmethod
    async def open(
        cls,
        disk: Disk,
        *,
        clock: Clock,
        random: Random,
        workers: Workers,
        config: LogConfig | None = None,
        on_failure: Callable[[StorageError], None] = lambda failure: None,
    ) -> LogDirectory:
        """Lock the directory and read its checkpoints; partitions are opened when they are first touched.

        `on_failure` is told when a disk failed in a way that leaves files in doubt: whoever runs this should
        stop, since nothing that was written last can be relied upon before it is read anew.
        """
        kernel.announce()
        directory = cls(disk, clock, random, workers, config or LogConfig(), on_failure)
        await disk.mkdir("")
        directory._release = await disk.lock(names.LOCK)
        try:
            await directory._load()
        except BaseException:
            directory._release()
            raise
        return directory

    async def _load(self) -> None:
        clean = await checkpoints.read_clean_shutdown(self._disk)
        self._is_clean, self.stopped_epoch = clean is not None, clean and clean.broker_epoch
        if self._is_clean:
            await checkpoints.remove_clean_shutdown(self._disk)
        else:
            await self._disk.sync_dir("")  # what is acted upon must still be there after the next crash
        for name in await self._disk.listdir(""):
            parsed = names.parse_partition_directory(name)
            if parsed is None:
                continue
            if parsed.kind is DirectoryKind.LIVE:
                self._known[parsed.topic, parsed.partition] = None
            elif parsed.kind is DirectoryKind.DELETE:
                self._doomed.append((0.0, name))
            elif parsed.kind is DirectoryKind.FUTURE:
                self.unfinished.append(((parsed.topic, parsed.partition), name))
        self._start_offsets = await self._read_offsets(names.LOG_START_CHECKPOINT) or {}
        self._high_watermarks = await self._read_offsets(names.REPLICATION_CHECKPOINT) or {}
        self._cleaned_offsets = await self._read_offsets(names.CLEANER_CHECKPOINT) or {}
        self._cleaned_in_file = dict(self._cleaned_offsets)
        await self._load_recovery_points()

    async def _load_recovery_points(self) -> None:
        recovery_points = await self._read_offsets(names.RECOVERY_POINT_CHECKPOINT)
        if recovery_points is not None:
            self._recovery_points = recovery_points
        elif self._known:
            logger.warning(
                "without %s every partition is read from its start",
                self._disk.describe(names.RECOVERY_POINT_CHECKPOINT),
            )
            self._recovery_points_known = self._is_clean = False
        else:
            # from now on its absence means that it was lost, not that there never was one
            await checkpoints.write_offset_checkpoint(self._disk, names.RECOVERY_POINT_CHECKPOINT, {})

    async def _read_offsets(self, name: str) -> dict[TopicPartition, int] | None:
        """A checkpoint; None where there is none or it cannot be believed: that costs a scan, not data."""
        if await self._disk.size_of(name) is None:
            return None
        try:
            offsets = await checkpoints.read_offset_checkpoint(self._disk, name)
        except CorruptCheckpoint as problem:
            logger.warning("%s; going on without it", problem)
            return None
        # an entry may outlive its partition, and must not be taken for one of the next of that name
        kept = {key: offset for key, offset in offsets.items() if key in self._known}
        if len(kept) < len(offsets):
            await checkpoints.write_offset_checkpoint(self._disk, name, kept)
        return kept

    @property
    def where(self) -> str:
        """The full name of the directory."""
        return self._disk.describe("")

    @property
    def disk(self) -> Disk:
        return self._disk

    def __contains__(self, key: TopicPartition) -> bool:
        """Whether a partition has a directory here."""
        return key in self._known

    @property
    def count(self) -> int:
        """How many partitions have a directory here."""
        return len(self._known)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that have a directory here, open or not."""
        return sorted(self._known)

    @property
    def was_clean(self) -> bool:
        """Whether the last stop was a clean one."""
        return self._is_clean

    def opened(self, topic: str, partition: int) -> PartitionLog | None:
        """A partition's log, if it has been touched before."""
        return self._logs.get((topic, partition))

    async def partition(
        self, topic: str, partition: int, *, topic_id: UUID | None = None, config: LogConfig | None = None
    ) -> PartitionLog:
        """A partition's log, opened (and recovered) or created on the first touch."""
        key = (topic, partition)
        log = self._logs.get(key)
        if log is not None and topic_id in (None, log.topic_id):
            return log
        async with self._turns.setdefault(key, Turn()):
            return await self._touch(key, topic_id, config)

    async def existing(self, topic: str, partition: int) -> PartitionLog | None:
        """A partition's log, opened if need be; None where there is no such partition, or not any more."""
        key = (topic, partition)
        async with self._turns.setdefault(key, Turn()):
            return await self._touch(key, None, None) if key in self._known else None

    async def _touch(
        self, key: TopicPartition, topic_id: UUID | None, config: LogConfig | None
    ) -> PartitionLog:
        self.require_open()
        log = self._logs.get(key)
        if log is None:
            try:
                log = await self._open(key, topic_id, config or self.config_of(key[0]))
            except StorageError as error:
                self._in_trouble(error)
                raise
            self._logs[key] = log
            self._known[key] = None
        elif topic_id not in (None, log.topic_id):
            log.topic_id = await self._topic_id(log.path, topic_id, is_new=False)
        return log

    async def _open(self, key: TopicPartition, topic_id: UUID | None, config: LogConfig) -> PartitionLog:
        path = names.partition_directory(*key)
        is_new, began = key not in self._known, self._clock.monotonic()
        is_clean = self._is_clean and key in self._recovery_points and key not in self._left_open
        topic_id = await self._topic_id(path, topic_id, is_new=is_new)
        log = await open_partition(
            self._home,
            path,
            config,
            is_clean=is_clean,
            recovery_point=self._recovery_points.get(key, 0) if self._recovery_points_known else None,
            cleaned_offset=self._cleaned_offsets.get(key, 0),
            start_offset=self._start_offsets.get(key, 0),
            topic_id=topic_id,
        )
        log.advance_high_watermark(self._high_watermarks.get(key, 0))
        log.cleaned_offset = self._cleaned_offsets.get(key)
        await self._lower_marks(key, log)
        self._left_open.discard(key)
        seconds = self._clock.monotonic() - began
        self.totals.partition_opened(seconds, is_recovery=not is_new and not is_clean)
        return log

    async def _lower_marks(self, key: TopicPartition, log: PartitionLog) -> None:
        """Where less is left than was noted: what comes in its place is neither synced nor replicated."""
        if log.recovery_point < self._recovery_points.get(key, 0):
            self._recovery_points[key] = log.recovery_point
            await self._persist()
        if log.high_watermark < self._high_watermarks.get(key, 0):
            self._high_watermarks[key] = log.high_watermark
            await self._write_high_watermarks()
        if log.cleaned_offset is not None and log.cleaned_offset > log.end_offset:
            log.cleaned_offset = self._cleaned_offsets[key] = log.end_offset
            await self._persist_cleaned()

    async def _topic_id(self, path: str, topic_id: UUID | None, *, is_new: bool) -> UUID | None:
        """The topic id that the directory belongs to, which must be the one asked for."""
        file = f"{path}/{names.PARTITION_METADATA}"
        found, problem = None, f"{self._disk.describe(file)} is missing"
        try:
            found = None if is_new else await checkpoints.read_partition_metadata(self._disk, file)
        except CorruptCheckpoint as corrupt:
            problem = str(corrupt)
        if found is None and topic_id is not None:
            if not is_new:
                logger.warning("%s; taking the directory for that of topic id %s", problem, topic_id)
            await self._disk.mkdir(path)
            # that of a new partition is synced with its first batches
            await checkpoints.write_partition_metadata(self._disk, file, topic_id, sync=not is_new)
            return topic_id
        if topic_id is not None and found != topic_id:
            raise InconsistentTopicId(
                f"{self._disk.describe(path)} holds topic id {found}, not {topic_id}: a topic of that name "
                "was deleted and made anew; remove the directory if its data is no longer wanted"
            )
        return found

    async def recover_untouched(self) -> None:
        """After an unclean stop: recover the partitions that nobody has touched yet, in the background."""
        for topic, partition in self.partitions:
            key = (topic, partition)
            if not self._is_clean and key in self._known and key not in self._turns:
                try:
                    await self.existing(topic, partition)
                except BarnabasError as error:  # of the disk, or of settings that a log cannot have
                    logger.error("cannot recover %s-%d: %s", topic, partition, error)

    async def delete_partition(self, topic: str, partition: int, *, keep: UUID | None = None) -> None:
        """Take a partition away: its directory is renamed at once and removed after the delay.

        One that is of topic id `keep` stays: it has been made anew meanwhile.
        """
        await self._take_away((topic, partition), DirectoryKind.DELETE, keep)

    async def set_aside(self, topic: str, partition: int) -> None:
        """Take a partition out of use that nobody knows; its files stay, under a name that says so."""
        await self._take_away((topic, partition), DirectoryKind.STRAY)

    async def discard(self, key: TopicPartition, reason: StorageError) -> None:
        """Take a partition away that is elsewhere now, for that reason to those who still use it. Where its
        files cannot be moved out of the way nobody finds them here nevertheless."""
        try:
            await self._take_away(key, DirectoryKind.DELETE, reason=reason)
        except StorageError as error:
            self._disown(key)
            logger.error("what was moved out of %s is left there for now: %s", self.where, error)
            self._in_trouble(error)

    def _disown(self, key: TopicPartition) -> None:
        """Know nothing of a partition any more, whatever there is on the disk."""
        self._known.pop(key, None)
        self._left_open.discard(key)
        log = self._logs.pop(key, None)
        if log is not None:
            log.abandon()
        for offsets in (
            self._recovery_points,
            self._start_offsets,
            self._high_watermarks,
            self._cleaned_offsets,
        ):
            offsets.pop(key, None)

    def require_open(self) -> None:
        """Raise why nothing can be opened here any more, if that is so."""
        if self._closed is not None:
            raise self._closed

    async def make_copy(self, key: TopicPartition, log: PartitionLog) -> PartitionLog:
        """An empty log for what is to move in from another directory; nobody finds it before `adopt`."""
        path = names.marked_directory(*key, DirectoryKind.FUTURE, self._random.uuid())
        await self._topic_id(path, log.topic_id, is_new=True)
        return await open_partition(self._home, path, log.config, is_clean=False, recovery_point=0)

    async def drop_copy(self, copy: PartitionLog) -> None:
        """Let go of an unfinished copy, and of its files, unless the disk has failed."""
        copy.abandon()
        if self._closed is None:
            await self._disk.remove_tree(copy.path)

    def drop_unfinished(self, name: str) -> None:
        """Have the files of a copy go that was never finished."""
        self._doomed.append((0.0, name))

    async def adopt(self, key: TopicPartition, copy: PartitionLog, original: PartitionLog) -> PartitionLog:
        """A copy that has been closed takes its place; returns its log, opened anew."""
        async with self._turns.setdefault(key, Turn()):
            self._recovery_points[key] = copy.end_offset
            self._high_watermarks[key] = copy.high_watermark
            if copy.start_offset:
                self._start_offsets[key] = copy.start_offset
            try:
                await self._checkpoint()
                await self._disk.rename(copy.path, names.partition_directory(*key))
                self._known[key] = None
                await self._sync_names()
                return await self._touch(key, original.topic_id, original.config)
            except BaseException:
                self._disown(key)  # the original goes on, and is the one that the metadata names
                raise

    async def _take_away(
        self,
        key: TopicPartition,
        kind: DirectoryKind,
        keep: UUID | None = None,
        reason: StorageError | None = None,
    ) -> None:
        # whoever wants one of the same name waits until nothing is left of this one, not even its checkpoints
        async with self._turns.setdefault(key, Turn()):
            if key not in self._known:
                return  # never touched: there is nothing to take away
            if keep is not None and await self.owner(key) == keep:
                return
            log = self._logs.pop(key, None)
            await self.stop_cleaning(key)
            if log is not None:
                self._to_flush.discard(log)
                self._left_open.add(key)
                await log.retire(reason or PartitionDeleted(f"{log.path} was deleted"))
            name = names.marked_directory(*key, kind, self._random.uuid())
            await self._disk.rename(names.partition_directory(*key), name)
            self._disown(key)
            await self._sync_names()
            if kind is DirectoryKind.DELETE:
                delay_ms = (log.config if log is not None else self._config).file_delete_delay_ms
                self._doomed.append((self._clock.monotonic() + delay_ms / 1000, name))
            await self.checkpoint()

    async def owner(self, key: TopicPartition) -> UUID | None:
        """The topic id that a directory bears, if it can be told."""
        log = self._logs.get(key)
        if log is not None:
            return log.topic_id
        file = f"{names.partition_directory(*key)}/{names.PARTITION_METADATA}"
        try:
            return await checkpoints.read_partition_metadata(self._disk, file)
        except CorruptCheckpoint:
            return None

    async def checkpoint(self) -> None:
        """Write all checkpoints of the directory."""
        await self._checkpoint()

    async def _write_checkpoints(self) -> None:
        await self._persist()
        for key, log in self._logs.items():
            self._high_watermarks[key] = log.high_watermark
        await self._write_high_watermarks()

    async def _write_high_watermarks(self) -> None:
        async with self._watermarks_turn:
            await checkpoints.write_offset_checkpoint(
                self._disk, names.REPLICATION_CHECKPOINT, self._high_watermarks
            )

    async def checkpoint_cleaned(self) -> None:
        """Write up to where the logs have been compacted."""
        await self._persist_cleaned()

    async def _write_cleaned_offsets(self) -> None:
        for key, log in self._logs.items():
            if log.cleaned_offset is not None:
                self._cleaned_offsets[key] = log.cleaned_offset
        if self._cleaned_offsets != self._cleaned_in_file:
            written = dict(self._cleaned_offsets)
            await checkpoints.write_offset_checkpoint(self._disk, names.CLEANER_CHECKPOINT, written)
            self._cleaned_in_file = written

    async def _write_offsets(self) -> None:
        lowered = {
            key: log.high_watermark
            for key, log in self._logs.items()
            if log.high_watermark < self._high_watermarks.get(key, 0)
        }
        if lowered:
            self._high_watermarks |= lowered
            await self._write_high_watermarks()
        await self._persist_cleaned()
        for key, log in self._logs.items():
            self._recovery_points[key] = log.recovery_point
            # as long as a deleted segment could come back, the start must be known apart from it
            start_offset = max(log.start_offset, log.start_to_be)
            is_told = bool(log.bases) and start_offset <= log.bases[0] and not log.side.names_dirty
            if start_offset and not is_told:
                self._start_offsets[key] = start_offset
            else:
                self._start_offsets.pop(key, None)
        await checkpoints.write_offset_checkpoint(self._disk, names.LOG_START_CHECKPOINT, self._start_offsets)
        await checkpoints.write_offset_checkpoint(
            self._disk, names.RECOVERY_POINT_CHECKPOINT, self._recovery_points
        )

    async def flush_due(self) -> None:
        """Flush sealed segments, and what has waited for `flush.ms`."""
        now = self._clock.monotonic()
        rolled = set(self._to_flush)
        self._to_flush.clear()
        for log in list(self._logs.values()):
            try:
                if (now - log.flushed_at) * 1000 >= log.config.flush_ms:
                    await log.flush()
                elif log in rolled:
                    await log.flush(log.active.base_offset)
            except StorageError as error:
                logger.error("cannot flush %s: %s", log.path, error)
                self._in_trouble(error)
                if log in rolled and log.failure is None:
                    self._to_flush.add(log)

    async def apply_retention(self) -> int:
        """Delete what retention no longer covers, and what was deleted long enough ago; returns the count."""
        await self._touch_what_is_due()
        count = 0
        for log in list(self._logs.values()):
            try:
                if log is not self.being_cleaned:
                    count += await trimming.apply_retention(log)
                log.expire_producers()
            except StorageError as error:
                if log.ended is None:  # else it was closed or deleted meanwhile
                    logger.error("cannot apply retention to %s: %s", log.path, error)
                    self._in_trouble(error)
        await self.sweep()
        return count

    async def _touch_what_is_due(self) -> None:
        """Open the partitions that nobody has touched where retention has something to do."""
        for topic, partition in [key for key in self._known if key not in self._logs]:
            try:
                path, config = names.partition_directory(topic, partition), self.config_of(topic)
                if await may_be_due(self._disk, path, config, self._clock.wall_ms()):
                    await self.existing(topic, partition)
            except BarnabasError as error:  # of the disk, or of settings that a log cannot have
                logger.error("cannot apply retention to %s-%d: %s", topic, partition, error)
            await asyncio.sleep(0)  # there may be thousands of them

    async def compacted(self) -> list[TopicPartition]:
        """The partitions, open or not, of topics that are compacted now."""
        by_topic: dict[str, bool] = {}
        found = []
        for number, key in enumerate(list(self._known)):
            log = self._logs.get(key)
            if log is not None:
                is_compacted = log.config.is_compacted
            elif (known := by_topic.get(key[0])) is not None:
                is_compacted = known
            else:
                is_compacted = by_topic[key[0]] = self._is_compacted(key[0])
            if is_compacted:
                found.append(key)
            if number % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)
        return found

    def _is_compacted(self, topic: str) -> bool:
        try:
            return self.config_of(topic).is_compacted
        except BarnabasError:  # settings that a log cannot have: whoever opens it will say so
            return False

    async def sizes(self) -> dict[TopicPartition, int]:
        """How many bytes of batches every partition has, opened or not, by topic and number."""
        found: dict[TopicPartition, int] = {}
        for number, key in enumerate(self.partitions):
            log = self._logs.get(key)
            if log is not None:
                found[key] = log.size_bytes
            else:
                found[key] = await self._size_on_disk(names.partition_directory(*key))
            if number % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)
        return found

    async def _size_on_disk(self, path: str) -> int:
        size_bytes = 0
        for name in await self._disk.listdir(path):
            if names.parse_offset(name, names.LOG) is not None:
                size_bytes += await self._disk.size_of(f"{path}/{name}") or 0
        return size_bytes

    async def may_be_dirty(self, topic: str, partition: int) -> bool:
        """Whether it is worth opening a partition, that nobody has, to compact it."""
        path, config = names.partition_directory(topic, partition), self.config_of(topic)
        return await may_be_dirty(self._disk, path, config, self._cleaned_offsets.get((topic, partition)))

    async def sweep(self) -> None:
        """Remove the files of what was deleted long enough ago (`file.delete.delay.ms`)."""
        await self._sweep()

    async def _sweep_once(self) -> None:
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

    async def abandon(self) -> None:
        """Let go of the directory as a crash would: nothing is written, and the next start recovers."""
        self._closed = self._closed or LogClosed(f"{self.where} was closed")
        for log in self._logs.values():
            log.abandon()
        self._release()

    def refuse(self, reason: StorageError) -> None:
        """The disk has failed: nothing is opened or changed here from now on."""
        self._closed = reason
        for log in self._logs.values():
            log.failure = log.failure or reason

    async def give_up(self, reason: StorageError) -> None:
        """Let go of the files of a disk that has failed, when those who use them have ended."""
        self.refuse(reason)
        for key, turn in list(self._turns.items()):
            await self.stop_cleaning(key)
            async with turn:
                if (log := self._logs.get(key)) is not None:
                    await log.retire(reason)
        self._release()

    def _in_trouble(self, error: StorageError) -> None:
        if self._closed is None:
            self.on_trouble(error)

    async def close(self, broker_epoch: int = -1) -> None:
        """Stop cleanly: every log closed, checkpoints written, and the mark that says so.

        There is no such mark where a log failed, or where one was never recovered from an unclean stop.
        """
        self._closed = LogClosed(f"{self.where} was closed")
        for turn in list(self._turns.values()):
            async with turn:  # whatever is being opened or deleted is waited for
                pass
        is_clean = (self._is_clean and not self._left_open) or self._known.keys() == self._logs.keys()
        is_clean = await self._close_logs() and is_clean
        try:
            await self.checkpoint()
            if is_clean:
                await checkpoints.write_clean_shutdown(self._disk, broker_epoch)
        finally:
            self._release()

    async def _close_logs(self) -> bool:
        """Close all logs, several at a time, so that the file system joins their syncs; True if all could."""
        to_close = iter(list(self._logs.values()))
        is_clean = True

        async def close_one_after_another() -> None:
            nonlocal is_clean
            for log in to_close:
                try:
                    is_clean = await log.close() and is_clean
                except StorageError as error:
                    logger.error("cannot close %s cleanly: %s", log.path, error)
                    log.abandon()
                    is_clean = False

        if len(self._logs) <= CLOSED_AT_ONCE:
            await close_one_after_another()
        else:
            await asyncio.gather(*(close_one_after_another() for _ in range(CLOSED_AT_ONCE)))
        return is_clean


def _nobody_minds(error: StorageError) -> None:
    """Whoever met with the error says so to whom it concerns."""


async def _nobody_cleans(key: TopicPartition) -> None:
    """There is nothing to wait for."""
