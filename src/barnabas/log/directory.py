"""A log directory: the partitions on one disk, opened, deleted, moved and closed.

A partition is opened at first use; until then it costs a dictionary entry. The directory is locked against
other nodes. `.kafka_cleanshutdown` marks a clean stop: the mark is used once, and removed, durably, before
anything is written.

The checkpoints of the directory are in `offset_checkpoints.py`, deleted files that wait for their removal in
`removals.py`, periodic work in `housekeeping.py`, and what is known of unopened partitions in `untouched.py`.

A node has one of these for each directory (`directories.py`). A directory whose disk has failed is given up:
it refuses every call with that reason, and releases its files.
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
    StorageError,
    wire_error,
)
from barnabas.core.random import Random
from barnabas.core.workers import Workers
from barnabas.log import checkpoints, names, owners
from barnabas.log.checkpoints import TopicPartition
from barnabas.log.closing import flush_together
from barnabas.log.config import LogConfig
from barnabas.log.names import DirectoryKind
from barnabas.log.offset_checkpoints import OffsetCheckpoints
from barnabas.log.partition import Home, LogClosed, PartitionLog
from barnabas.log.recovery import open_partition
from barnabas.log.removals import Removals
from barnabas.log.shared_call import SharedCall
from barnabas.log.totals import LogTotals
from barnabas.log.turn import Turn
from barnabas.records import kernel

logger = logging.getLogger("barnabas.log")

CLOSED_AT_ONCE = 32


class PartitionDeleted(StorageError):
    """The partition was deleted while its log was still in use."""

    wire = wire_error("UNKNOWN_TOPIC_OR_PARTITION")


class LogDirectory:
    """The partitions of one disk. Created by `open`; `close` stops cleanly."""

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
        # the settings of partitions that are opened without any, such as those not yet used
        self.config_of: Callable[[str], LogConfig] = lambda topic: config
        # the log that is being compacted, which retention skips; and the function that cancels its compaction
        # before its files are removed
        self.being_cleaned: PartitionLog | None = None
        self.stop_cleaning: Callable[[TopicPartition], Awaitable[None]] = _nobody_cleans
        # partitions on their way to another directory, which are not compacted meanwhile
        self.held_back: dict[TopicPartition, None] = {}
        # unfinished copies of such partitions, left by a stop, with the names of their directories
        self.unfinished: list[tuple[TopicPartition, str]] = []
        # called with errors that mean that the disk is failing, even if no file is in doubt
        self.on_trouble: Callable[[StorageError], None] = _nobody_minds
        self.totals = LogTotals()
        self._is_clean = False
        # the reason why nothing can be opened here any more
        self._closed: StorageError | None = None
        self._release: Callable[[], None] = lambda: None
        # the partitions with a directory here, open or not
        self.known: dict[TopicPartition, None] = {}
        # partitions that were written to since the start and released by a failed deletion
        self._left_open: set[TopicPartition] = set()
        # the open ones; only this class changes it
        self.logs: dict[TopicPartition, PartitionLog] = {}
        # locks for opening and deleting a partition; one for every name that was ever used
        self._turns: dict[TopicPartition, Turn] = {}
        self._recovery_points_known = True
        self.stopped_epoch: int | None = None  # of the broker that stopped cleanly here
        # logs with a sealed segment that is not flushed yet
        self.to_flush: set[PartitionLog] = set()
        self.offsets = OffsetCheckpoints(disk, self.logs)
        self.removals = Removals(disk, clock, self.logs, self.in_trouble)
        self._sync_names = SharedCall(partial(disk.sync_dir, ""))
        self._home = Home(
            disk,
            clock,
            random,
            workers,
            self.offsets.persist,
            self.to_flush.add,
            on_failure,
            self.in_trouble,
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
        """Lock the directory and read its checkpoints; partitions are opened at first use.

        `on_failure` is called when a failure of the disk leaves files in doubt: the node should stop, since
        the last writes cannot be relied upon before the files are read again.
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
            await self._disk.sync_dir("")  # the start relies on these names: they must survive the next crash
        for name in await self._disk.listdir(""):
            parsed = names.parse_partition_directory(name)
            if parsed is None:
                continue
            if parsed.kind is DirectoryKind.LIVE:
                self.known[parsed.topic, parsed.partition] = None
            elif parsed.kind is DirectoryKind.DELETE:
                self.removals.add(name)
            elif parsed.kind is DirectoryKind.FUTURE:
                self.unfinished.append(((parsed.topic, parsed.partition), name))
        if await self.offsets.load(self.known):
            return
        if await self._holds_records():
            logger.warning(
                "without %s every partition is read from its start",
                self._disk.describe(names.RECOVERY_POINT_CHECKPOINT),
            )
            self._recovery_points_known = self._is_clean = False
        else:
            await self.offsets.begin()

    async def _holds_records(self) -> bool:
        for key in self.known:
            if await owners.holds_records(self._disk, names.partition_directory(*key)):
                return True
        return False

    @property
    def where(self) -> str:
        """The full name of the directory."""
        return self._disk.describe("")

    @property
    def disk(self) -> Disk:
        return self._disk

    @property
    def clock(self) -> Clock:
        return self._clock

    def __contains__(self, key: TopicPartition) -> bool:
        """Whether a partition has a directory here."""
        return key in self.known

    @property
    def count(self) -> int:
        """The number of partitions that have a directory here."""
        return len(self.known)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that have a directory here, open or not."""
        return sorted(self.known)

    @property
    def was_clean(self) -> bool:
        """Whether the last stop was clean."""
        return self._is_clean

    def is_untouched(self, key: TopicPartition) -> bool:
        """Whether a partition has a directory here, and was neither opened nor deleted since the start."""
        return key in self.known and key not in self._turns

    def opened(self, topic: str, partition: int) -> PartitionLog | None:
        """A partition's log, if it has been opened before."""
        return self.logs.get((topic, partition))

    async def partition(
        self, topic: str, partition: int, *, topic_id: UUID | None = None, config: LogConfig | None = None
    ) -> PartitionLog:
        """A partition's log, opened (and recovered) or created at first use."""
        key = (topic, partition)
        log = self.logs.get(key)
        if log is not None and topic_id in (None, log.topic_id):
            return log
        async with self._turns.setdefault(key, Turn()):
            return await self._touch(key, topic_id, config)

    async def existing(self, topic: str, partition: int) -> PartitionLog | None:
        """A partition's log, opened if needed; None if there is no such partition, or not any more."""
        key = (topic, partition)
        async with self._turns.setdefault(key, Turn()):
            return await self._touch(key, None, None) if key in self.known else None

    async def _touch(
        self, key: TopicPartition, topic_id: UUID | None, config: LogConfig | None
    ) -> PartitionLog:
        self.require_open()
        log = self.logs.get(key)
        if log is None:
            try:
                log = await self._open(key, topic_id, config or self.config_of(key[0]))
            except StorageError as error:
                self.in_trouble(error)
                raise
            self.logs[key] = log
            self.known[key] = None
        elif topic_id not in (None, log.topic_id):
            log.topic_id = await owners.claim(self._disk, log.path, topic_id, is_new=False)
        return log

    async def _open(self, key: TopicPartition, topic_id: UUID | None, config: LogConfig) -> PartitionLog:
        path = names.partition_directory(*key)
        is_new, began = key not in self.known, self._clock.monotonic()
        is_clean = self._is_clean and key in self.offsets.recovery_points and key not in self._left_open
        topic_id = await owners.claim(self._disk, path, topic_id, is_new=is_new)
        log = await open_partition(
            self._home,
            path,
            config,
            is_clean=is_clean,
            recovery_point=self.offsets.recovery_points.get(key, 0) if self._recovery_points_known else None,
            cleaned_offset=self.offsets.cleaned_offsets.get(key, 0),
            start_offset=self.offsets.start_offsets.get(key, 0),
            topic_id=topic_id,
        )
        log.advance_high_watermark(self.offsets.high_watermarks.get(key, 0))
        log.cleaned_offset = self.offsets.cleaned_offsets.get(key)
        await self.offsets.lower(key, log)
        self._left_open.discard(key)
        seconds = self._clock.monotonic() - began
        self.totals.partition_opened(seconds, is_recovery=not is_new and not is_clean)
        return log

    async def delete_partition(
        self,
        topic: str,
        partition: int,
        *,
        keep: UUID | None = None,
        unless: Callable[[], bool] = lambda: False,
    ) -> None:
        """Delete a partition: its directory is renamed at once and removed after the delay.

        A partition with topic id `keep` stays: it was created again meanwhile. `unless` is called under the
        partition's lock; if it returns True, the partition is needed and stays.
        """
        await self._take_away((topic, partition), DirectoryKind.DELETE, keep, unless=unless)

    async def set_aside(self, topic: str, partition: int, *, keep: UUID | None = None) -> None:
        """Take an unknown partition out of use, unless it has topic id `keep`, by renaming it `-stray`."""
        await self._take_away((topic, partition), DirectoryKind.STRAY, keep)

    async def discard(self, key: TopicPartition, reason: StorageError) -> None:
        """Remove a partition that has moved to another directory; its users get `reason`. Even if its files
        cannot be renamed, the partition is not in this directory any more."""
        try:
            await self._take_away(key, DirectoryKind.DELETE, reason=reason)
        except StorageError as error:
            self._disown(key)
            logger.error("what was moved out of %s is left there for now: %s", self.where, error)
            self.in_trouble(error)

    def _disown(self, key: TopicPartition) -> None:
        """Forget a partition; its files stay as they are."""
        self.known.pop(key, None)
        self._left_open.discard(key)
        log = self.logs.pop(key, None)
        if log is not None:
            log.abandon()
        self.offsets.forget(key)

    def require_open(self) -> None:
        """Raise the reason why nothing can be opened here any more, if there is one."""
        if self._closed is not None:
            raise self._closed

    async def make_copy(self, key: TopicPartition, log: PartitionLog) -> PartitionLog:
        """An empty log for a partition that moves in from another directory; it is hidden until `adopt`."""
        path = names.marked_directory(*key, DirectoryKind.FUTURE, self._random.uuid())
        await owners.claim(self._disk, path, log.topic_id, is_new=True)
        return await open_partition(self._home, path, log.config, is_clean=False, recovery_point=0)

    async def drop_copy(self, copy: PartitionLog) -> None:
        """Release an unfinished copy and remove its files, unless the disk has failed."""
        copy.abandon()
        if self._closed is None:
            await self._disk.remove_tree(copy.path)

    def drop_unfinished(self, name: str) -> None:
        """Remove the files of an unfinished copy."""
        self.removals.add(name)

    async def adopt(self, key: TopicPartition, copy: PartitionLog, original: PartitionLog) -> PartitionLog:
        """Put a closed copy in the partition's place; returns its log, reopened."""
        async with self._turns.setdefault(key, Turn()):
            self.offsets.note(key, copy)
            try:
                await self.offsets.write_all()
                await self._disk.rename(copy.path, names.partition_directory(*key))
                self.known[key] = None
                await self._sync_names()
                return await self._touch(key, original.topic_id, original.config)
            except BaseException:
                self._disown(key)  # the original stays in use; the metadata names it
                raise

    async def _take_away(
        self,
        key: TopicPartition,
        kind: DirectoryKind,
        keep: UUID | None = None,
        reason: StorageError | None = None,
        unless: Callable[[], bool] = lambda: False,
    ) -> None:
        # waiters for the same name go on only when nothing is left of this one, checkpoints included
        async with self._turns.setdefault(key, Turn()):
            if key not in self.known:
                return  # it does not exist: there is nothing to remove
            if unless():
                return
            if keep is not None and await self.owner(key) == keep:
                return
            log = self.logs.pop(key, None)
            await self.stop_cleaning(key)
            if log is not None:
                self.to_flush.discard(log)
                self._left_open.add(key)
                await log.retire(reason or PartitionDeleted(f"{log.path} was deleted"))
            name = names.marked_directory(*key, kind, self._random.uuid())
            await self._disk.rename(names.partition_directory(*key), name)
            self._disown(key)
            await self._sync_names()
            if kind is DirectoryKind.DELETE:
                delay_ms = (log.config if log is not None else self._config).file_delete_delay_ms
                self.removals.add_later(name, delay_ms)
            await self.checkpoint()

    async def owner(self, key: TopicPartition) -> UUID | None:
        """The topic id of a partition's directory, None if unknown."""
        log = self.logs.get(key)
        if log is not None:
            return log.topic_id
        return await owners.owner(self._disk, names.partition_directory(*key))

    async def checkpoint(self) -> None:
        """Write all checkpoints of the directory."""
        await self.offsets.write_all()

    async def abandon(self) -> None:
        """Release the directory as a crash would: nothing is written, and the next start recovers."""
        self._closed = self._closed or LogClosed(f"{self.where} was closed")
        for log in self.logs.values():
            log.abandon()
        self._release()

    def refuse(self, reason: StorageError) -> None:
        """The disk has failed: nothing is opened or changed here from now on."""
        self._closed = reason
        for log in self.logs.values():
            log.failure = log.failure or reason

    async def give_up(self, reason: StorageError) -> None:
        """Release the files of a failed disk, once their users have ended."""
        self.refuse(reason)
        for key, turn in list(self._turns.items()):
            await self.stop_cleaning(key)
            async with turn:
                if (log := self.logs.get(key)) is not None:
                    await log.retire(reason)
        self._release()

    def in_trouble(self, error: StorageError) -> None:
        """Report an error of the disk, unless the directory is closed or given up."""
        if self._closed is None:
            self.on_trouble(error)

    async def close(self, broker_epoch: int = -1) -> bool:
        """Stop cleanly: close all logs, write checkpoints and the clean-shutdown mark; False if a log failed.

        The mark is not written then, nor if a log was never recovered from an unclean stop.
        """
        self._closed = LogClosed(f"{self.where} was closed")
        for turn in list(self._turns.values()):
            async with turn:  # wait for partitions that are being opened or deleted
                pass
        is_clean = (self._is_clean and not self._left_open) or self.known.keys() == self.logs.keys()
        await flush_together(self._disk, list(self.logs.values()), self._home.on_failure)
        are_closed = await self._close_logs()
        try:
            await self.checkpoint()
            if is_clean and are_closed:
                await checkpoints.write_clean_shutdown(self._disk, broker_epoch)
        finally:
            self._release()
        return are_closed

    async def _close_logs(self) -> bool:
        """Close all logs, several at a time so that their syncs are joined; True if all were closed."""
        to_close = iter(list(self.logs.values()))
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

        if len(self.logs) <= CLOSED_AT_ONCE:
            await close_one_after_another()
        else:
            await asyncio.gather(*(close_one_after_another() for _ in range(CLOSED_AT_ONCE)))
        return is_clean


def _nobody_minds(error: StorageError) -> None:
    """The default of `on_trouble`: does nothing."""


async def _nobody_cleans(key: TopicPartition) -> None:
    """No compaction is in progress."""
