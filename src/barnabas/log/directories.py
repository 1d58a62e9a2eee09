"""The log directories of a node as one: every partition is in exactly one of them (`settle`).

A partition stays in the directory that has its files. A new one goes to the directory with the fewest
partitions, and keeps that place even before its files exist (`place`), so that the node can report the place
as soon as it is chosen.

A directory whose disk fails is dropped while the others go on: it is not used again, and its partitions are
not created elsewhere, since they come back with the disk. The same holds for a directory that could not be
opened at the start, but its partitions are not known. As long as a directory is missing, a partition without
files may be in it, and counts as lost unless it is known to be new.

Most nodes have one directory (`is_single`). Then there is no choice, and no place is kept in memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from uuid import UUID

from barnabas.core.errors import StorageError
from barnabas.log import names
from barnabas.log.checkpoints import TopicPartition
from barnabas.log.config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import PartitionLog

logger = logging.getLogger("barnabas.log")

# it is in a log directory, but is not a topic's partition that could be placed
_METADATA = ("__cluster_metadata", 0)


class PartitionTwice(StorageError):
    """Two directories hold the same partition."""


class LogDirectories:
    """The log directories of a node, by id; `missing` are those that could not be opened."""

    def __init__(
        self, directories: Mapping[UUID, LogDirectory], missing: Mapping[str, StorageError] | None = None
    ) -> None:
        self._live = dict(directories)
        # by name, the reason why a directory is not in use
        self.missing: dict[str, StorageError] = dict(missing or {})
        # cancels the move of a partition before its files are removed
        self.stop_moving: Callable[[TopicPartition], Awaitable[None]] = _nobody_moves
        # partitions that are changing their directory at the moment: callers wait for these
        self.switching: dict[TopicPartition, asyncio.Future[None]] = {}
        # whether a directory is left out when a new partition is placed
        self.is_cordoned: Callable[[str], bool] = lambda where: False
        # the places of partitions without files
        self._planned: dict[UUID, dict[TopicPartition, None]] = {each: {} for each in self._live}

    # --- the directories

    @property
    def live(self) -> dict[UUID, LogDirectory]:
        """The directories in use."""
        return self._live

    @property
    def is_single(self) -> bool:
        """Whether the node has one log directory and no other that is missing."""
        return len(self._live) == 1 and not self.missing

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that have files in a directory in use, opened or not."""
        return sorted(key for directory in self._live.values() for key in directory.partitions)

    @property
    def was_clean(self) -> bool:
        """Whether the last stop was clean in all of them."""
        return all(directory.was_clean for directory in self._live.values())

    # --- where a partition is

    def where(self, topic: str, partition: int) -> UUID | None:
        """The directory with a partition's files."""
        key = (topic, partition)
        return next((each for each, directory in self._live.items() if key in directory), None)

    def place(self, topic: str, partition: int, told: UUID | None = None) -> UUID:
        """The place of a partition, now or in future: `told` if that is in use, else the emptiest one."""
        there = self._found_or_planned((topic, partition))
        if there is None:
            there = told if told in self._live else self._emptiest()
            self._planned[there][topic, partition] = None
        return there

    def _found_or_planned(self, key: TopicPartition) -> UUID | None:
        if self.is_single:
            return next(iter(self._live))
        there = self.where(*key)
        if there is None:
            there = next((each for each, planned in self._planned.items() if key in planned), None)
        return there

    def _emptiest(self) -> UUID:
        open_to_new = [each for each, one in self._live.items() if not self.is_cordoned(one.where)]

        def partitions_in(directory_id: UUID) -> int:
            directory = self._live[directory_id]
            return directory.count - (_METADATA in directory) + len(self._planned[directory_id])

        return min(open_to_new or self._live, key=partitions_in)

    def put(self, topic: str, partition: int, directory_id: UUID) -> None:
        """Assign another place to a partition without files."""
        self.forget(topic, partition)
        self._planned[directory_id][topic, partition] = None

    def forget(self, topic: str, partition: int) -> None:
        """Forget the place of a deleted partition: the next of that name may get another one."""
        for planned in self._planned.values():
            planned.pop((topic, partition), None)

    async def settle(
        self,
        topic_id_of: Callable[[str], UUID | None],
        told: Callable[[TopicPartition], UUID | None] = lambda key: None,
    ) -> None:
        """Make sure that no partition is in two directories. Set aside a copy in a directory that the
        metadata does not name (`told`), left by a move that was nearly over, and a copy of another topic id,
        left by a topic that was deleted while its directory was away. If that does not decide, raise."""
        for key, holders in self._held_twice().items():
            topic_id = topic_id_of(key[0])
            valid = [each for each in holders if await each.owner(key) == topic_id]
            if len(valid) > 1:
                named = told(key)
                if named is None or self._live.get(named) not in valid:
                    raise _twice(key, valid[0], valid[1])
                valid = [self._live[named]]
            for directory in holders:
                if valid and directory is not valid[0]:
                    logger.warning(
                        "%s-%d is in %s and in %s; the former counts, the latter is kept as ...-stray",
                        *key,
                        valid[0].where,
                        directory.where,
                    )
                    await directory.set_aside(*key)
        for directory in self._live.values():
            for key, name in directory.unfinished:
                if self.where(*key) is not None:  # otherwise it may be all that is left
                    logger.warning("a move to %s/%s was not finished: the copy goes", directory.where, name)
                    directory.drop_unfinished(name)

    def _held_twice(self) -> dict[TopicPartition, list[LogDirectory]]:
        if len(self._live) == 1:  # it may hold very many
            return {}
        found: dict[TopicPartition, list[LogDirectory]] = {}
        for directory in self._live.values():
            for key in directory.partitions:
                found.setdefault(key, []).append(directory)
        return {key: holders for key, holders in found.items() if len(holders) > 1}

    # --- operations on a partition: as in one directory

    def opened(self, topic: str, partition: int) -> PartitionLog | None:
        """A partition's log, if it has been opened before."""
        for directory in self._live.values():
            if (log := directory.opened(topic, partition)) is not None:
                return log
        return None

    async def partition(
        self, topic: str, partition: int, *, topic_id: UUID | None = None, config: LogConfig | None = None
    ) -> PartitionLog:
        """A partition's log, opened (and recovered) or created at first use."""
        await self._settled((topic, partition))
        there = self.place(topic, partition)
        log = await self._live[there].partition(topic, partition, topic_id=topic_id, config=config)
        self._planned.get(there, {}).pop((topic, partition), None)
        return log

    async def existing(self, topic: str, partition: int) -> PartitionLog | None:
        """A partition's log, opened if needed; None if there is no such partition, or not any more."""
        await self._settled((topic, partition))
        there = self.where(topic, partition)
        return None if there is None else await self._live[there].existing(topic, partition)

    async def delete_partition(
        self,
        topic: str,
        partition: int,
        *,
        keep: UUID | None = None,
        unless: Callable[[], bool] = lambda: False,
    ) -> None:
        """Delete a partition, unless it has topic id `keep`, or `unless` says that it is needed."""
        await self.stop_moving((topic, partition))
        there = self._found_or_planned((topic, partition))  # it may be about to be created
        if there is not None:
            await self._live[there].delete_partition(topic, partition, keep=keep, unless=unless)

    async def set_aside(self, topic: str, partition: int, *, keep: UUID | None = None) -> None:
        """Take an unknown partition out of use, unless it has topic id `keep`, by renaming it `-stray`."""
        there = self.where(topic, partition)
        if there is None:
            return
        directory = self._live[there]
        try:
            await directory.set_aside(topic, partition, keep=keep)
        except StorageError as error:
            if self.is_single:
                raise
            logger.error("cannot set %s-%d aside: %s", topic, partition, error)
            directory.on_trouble(error)

    async def _settled(self, key: TopicPartition) -> None:
        while (switch := self.switching.get(key)) is not None:
            await asyncio.shield(switch)

    # --- a directory that fails

    def drop(self, directory_id: UUID, reason: StorageError) -> list[TopicPartition]:
        """Take a failed directory, which must not be the last one, out of use; returns its partitions,
        including the planned ones. The caller has to stop them and to release the directory
        (`LogDirectory.give_up`)."""
        directory = self._live.pop(directory_id)
        directory.refuse(reason)
        self.missing[directory.where] = reason
        return sorted({*directory.partitions, *self._planned.pop(directory_id)})


def _twice(key: TopicPartition, one: LogDirectory, other: LogDirectory) -> PartitionTwice:
    return PartitionTwice(
        f"{names.partition_directory(*key)} is in two log directories, {one.where} and {other.where}: a move "
        "between them did not end, or one was copied; remove it from one of them (the one whose disk failed, "
        "if one did) and start again"
    )


def last_epoch(directories: Iterable[LogDirectory]) -> int | None:
    """The epoch of the broker that stopped cleanly in all of them; None if they differ."""
    epochs = {directory.stopped_epoch for directory in directories}
    return epochs.pop() if len(epochs) == 1 else None


async def _nobody_moves(key: TopicPartition) -> None:
    """No move is in progress."""
