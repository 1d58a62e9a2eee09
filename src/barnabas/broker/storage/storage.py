"""Opens the directories of a node: checks their owners, and formats new ones.

Topics are in the directories of `log.dirs`, the metadata in `metadata.log.dir` or else in the first of them.
The metadata directory comes first: a cluster is founded in it, and only then are the other directories
formatted for the same node, so that a crash in between leaves nothing contradictory. Of several log
directories, one that cannot be read is left out while others remain (`missing` has the reason), since it is
better to have its partitions offline than the whole node. A directory of another node or cluster is a
mistake, and refused.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import NamedTuple
from uuid import UUID

from barnabas.broker.storage.formatting import (
    METADATA_DIRECTORY,
    DirectoryRefused,
    check_directory,
    format_further,
)
from barnabas.broker.storage.kept_epoch import EpochKeeper
from barnabas.core.clock import Clock
from barnabas.core.disk import DirectoryLocked, Disk
from barnabas.core.errors import StorageError
from barnabas.core.random import Random, random_id
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.workers import Workers
from barnabas.log.checkpoints import CorruptCheckpoint, MetaProperties
from barnabas.log.directories import LogDirectories, last_epoch
from barnabas.log.directory import LogDirectory
from barnabas.metadata.directories import directory_of
from barnabas.metadata.image import ClusterImage

logger = logging.getLogger("barnabas.node")

Failed = Callable[[UUID, StorageError], None]
Found = Callable[[Disk, dict[str, str]], Awaitable[MetaProperties]]


class Layout(NamedTuple):
    """The directories that the settings name."""

    log_dirs: tuple[str, ...]
    metadata_dir: str


def read_layout(settings: BrokerSettings) -> Layout:
    """The directories of `log.dirs`, `log.dir` and `metadata.log.dir`."""
    log_dirs = settings.log_dirs
    if not log_dirs:
        raise InvalidSetting("log.dirs names no directory: name one")
    return Layout(log_dirs, settings.string("metadata.log.dir") or log_dirs[0])


class Storage:
    """The open directories of a node. `logs` holds the topics; made by `open_storage`."""

    def __init__(
        self,
        meta: MetaProperties,
        metadata: LogDirectory,
        directories: dict[UUID, LogDirectory],
        logs: LogDirectories,
        named: dict[str, str],
        epochs: EpochKeeper,
        previous_epoch: int | None,
    ) -> None:
        assert meta.directory_id is not None
        self.cluster_id = meta.cluster_id
        self.metadata_id = meta.directory_id
        self.metadata = metadata
        self.directories = directories
        self.logs = logs
        # the full names of all of `log.dirs`, in use or not, by their names in the settings
        self.named = named
        self._epochs = epochs
        # the last registration's epoch, if that broker stopped cleanly or its process died without loss
        self.previous_epoch = previous_epoch

    def at(self, where: str) -> LogDirectory | None:
        """The directory in use with that full name, or None."""
        return next((each for each in self.directories.values() if each.where == where), None)

    def place(self, topic: str, partition: int, told: UUID | None = None) -> UUID:
        """The directory in which a partition is or will be; `told` is used for one without files."""
        return self.logs.place(topic, partition, told)

    def cordon(self, log_dirs: Callable[[], Sequence[str]]) -> None:
        """Put no new partition into the directories that `log_dirs` returns at that time; `*` stands for
        all."""
        self.logs.is_cordoned = lambda where: is_cordoned(self.named, where, log_dirs())

    def cordoned(self, log_dirs: Sequence[str]) -> list[UUID]:
        """The directories in use that these settings name."""
        directories = self.directories.items()
        return [each for each, one in directories if is_cordoned(self.named, one.where, log_dirs)]

    @property
    def all(self) -> dict[UUID, LogDirectory]:
        """The directories in use, the metadata directory included."""
        return {self.metadata_id: self.metadata, **self.directories}

    def drop(self, directory_id: UUID, reason: StorageError) -> tuple[LogDirectory, list[tuple[str, int]]]:
        """Take a failed directory out of use while others remain; returns it, and the partitions that were in
        it."""
        directory = self.directories.pop(directory_id)
        return directory, self.logs.drop(directory_id, reason)

    def can_do_without(self, directory_id: UUID) -> bool:
        """Whether the node can go on without a directory."""
        others = [each for each in self.directories if each != directory_id]
        return directory_id in self.directories and directory_id != self.metadata_id and bool(others)

    async def settle(self, image: ClusterImage, node_id: int) -> None:
        """Make sure that no partition is in two directories; the image decides which topics exist."""

        def topic_id_of(name: str) -> UUID | None:
            topic = image.topic(name)
            return None if topic is None else UUID(bytes=topic.id)

        def told(key: tuple[str, int]) -> UUID | None:
            topic = image.topic(key[0])
            partition = None if topic is None else topic.partition(key[1])
            return None if partition is None else UUID(bytes=directory_of(partition, node_id))

        await self.logs.settle(topic_id_of, told)

    async def keep_epoch(self, broker_epoch: int) -> None:
        """The broker has registered: from now on the death of its process is no unclean shutdown."""
        await self._epochs.keep(broker_epoch, _boots(self.directories))

    async def close(self, broker_epoch: int) -> bool:
        """Stop cleanly; the metadata directory is closed last. False if a directory could not be closed, as
        on a full disk: the log has the error, and the next start checks that directory."""
        await self._epochs.close()
        is_clean = True
        everything = self.all
        del everything[self.metadata_id]
        for directory in (*everything.values(), self.metadata):
            try:
                is_clean = await directory.close(broker_epoch) and is_clean
            except StorageError as error:
                logger.error("cannot close %s cleanly: %s", directory.where, error)
                is_clean = False
        return is_clean

    async def abandon(self) -> None:
        """Release everything as a crash would."""
        await self._epochs.close()
        for directory in self.all.values():
            await directory.abandon()


def _boots(directories: Mapping[UUID, LogDirectory]) -> dict[UUID, str | None]:
    return {directory_id: each.disk.boot_id for directory_id, each in directories.items()}


def is_cordoned(named: Mapping[str, str], where: str, cordoned: Sequence[str]) -> bool:
    """Whether a directory, by its full name, is among those of `cordoned.log.dirs`."""
    return "*" in cordoned or any(named.get(each) == where for each in cordoned)


class _Owned:
    """A directory of this node."""

    def __init__(self, disk: Disk, meta: MetaProperties, *, is_new: bool) -> None:
        assert meta.directory_id is not None
        self.disk = disk
        self.meta = meta
        self.id = meta.directory_id
        self.is_new = is_new


async def open_storage(
    layout: Layout,
    disk_of: Callable[[str], Disk],
    *,
    node_id: int,
    found_cluster: Found,
    on_failure: Failed,
    clock: Clock,
    random: Random,
    workers: Workers,
) -> Storage:
    """Open every directory; `found_cluster` formats the metadata directory if it is new."""
    open_log = partial(LogDirectory.open, clock=clock, random=random, workers=workers)
    missing: dict[str, StorageError] = {}
    disks = {path: disk_of(path) for path in dict.fromkeys((layout.metadata_dir, *layout.log_dirs))}
    refuse_overlaps(disks)
    owned = await _identify(layout, disks, node_id, found_cluster, random, missing)
    opened: dict[str, LogDirectory] = {}
    epochs = EpochKeeper(disks[layout.metadata_dir])

    def failed(directory_id: UUID, error: StorageError) -> None:
        epochs.forget()
        on_failure(directory_id, error)

    try:
        for path, own in owned.items():
            try:
                opened[path] = await open_log(own.disk, on_failure=partial(failed, own.id))
            except DirectoryLocked:
                raise
            except StorageError as error:
                if path == layout.metadata_dir:
                    raise
                _leave_out(own.disk, error, missing)
        named = {path: disks[path].describe("") for path in layout.log_dirs}
        return await _assemble(layout, owned, opened, missing, named, epochs)
    except BaseException:
        for directory in opened.values():
            await directory.abandon()
        raise


def refuse_overlaps(disks: Mapping[str, Disk]) -> None:
    """Refuse a directory that is named twice, or inside another, where it would be taken for a
    partition's."""
    full = {path: disk.describe("").rstrip("/") for path, disk in disks.items()}
    for path, other in permutations(full, 2):
        if full[path] == full[other]:
            raise InvalidSetting(f"log.dirs and metadata.log.dir: {path} and {other} are the same directory")
        if full[path].startswith(f"{full[other]}/"):
            raise InvalidSetting(
                f"log.dirs and metadata.log.dir: {path} is inside {other}: put them side by side"
            )


async def _identify(
    layout: Layout,
    disks: dict[str, Disk],
    node_id: int,
    found_cluster: Found,
    random: Random,
    missing: dict[str, StorageError],
) -> dict[str, _Owned]:
    """Check the owner of all directories, and format new ones; the metadata directory comes first."""
    first = disks[layout.metadata_dir]
    meta = await check_directory(first, node_id)
    others: dict[str, tuple[Disk, MetaProperties | None]] = {}
    for path, disk in disks.items():
        if disk is not first:
            try:
                others[path] = disk, await check_directory(disk, node_id)
            except CorruptCheckpoint:
                raise
            except StorageError as error:
                _leave_out(disk, error, missing)
    is_new = meta is None
    if meta is None:
        _refuse_lost_metadata(first, others)
        meta = await found_cluster(first, directory_settings(layout, disks))
    owned = {layout.metadata_dir: _Owned(first, meta, is_new=is_new)}
    for path, (disk, found) in others.items():
        try:
            owned[path] = await _further(disk, found, meta, random)
        except DirectoryLocked:
            raise
        except StorageError as error:
            _leave_out(disk, error, missing)
    _refuse_copies(owned)
    return owned


def directory_settings(layout: Layout, disks: Mapping[str, Disk]) -> dict[str, str]:
    """The settings that name the directories, with their full names."""
    full = {path: disk.describe("").rstrip("/") for path, disk in disks.items()}
    places = {"log.dirs": ",".join(full[path] for path in layout.log_dirs)}
    if layout.metadata_dir not in layout.log_dirs:
        places["metadata.log.dir"] = full[layout.metadata_dir]
    return places


async def _further(disk: Disk, found: MetaProperties | None, meta: MetaProperties, random: Random) -> _Owned:
    if found is None:
        new = meta._replace(directory_id=random_id(random))
        logger.info("a new directory: %s becomes one more of node %d", disk.describe(""), meta.node_id)
        await format_further(disk, new)
        return _Owned(disk, new, is_new=True)
    if found.cluster_id != meta.cluster_id:
        raise DirectoryRefused(
            f"{disk.describe('')} belongs to cluster {found.cluster_id}, the metadata is that of cluster "
            f"{meta.cluster_id}: give this node an empty directory in its place"
        )
    if await disk.listdir(METADATA_DIRECTORY):
        raise DirectoryRefused(
            f"{disk.describe(METADATA_DIRECTORY)} is not where the metadata is to be: let metadata.log.dir "
            f"name {disk.describe('')} if that is the metadata of this node, or remove it"
        )
    return _Owned(disk, found, is_new=False)


def _refuse_lost_metadata(first: Disk, others: dict[str, tuple[Disk, MetaProperties | None]]) -> None:
    for disk, found in others.values():
        if found is not None:
            raise DirectoryRefused(
                f"{first.describe('')} is to hold the metadata and is empty, but {disk.describe('')} belongs "
                f"to node {found.node_id} of cluster {found.cluster_id} already: name the directory that has "
                f"{METADATA_DIRECTORY} first in log.dirs, or in metadata.log.dir"
            )


def _refuse_copies(owned: dict[str, _Owned]) -> None:
    seen: dict[UUID, str] = {}
    for each in owned.values():
        where = each.disk.describe("")
        if (other := seen.setdefault(each.id, where)) != where:
            raise DirectoryRefused(
                f"{other} and {where} have the same directory.id: one is a copy of the other; "
                "leave one of them out"
            )


def _leave_out(disk: Disk, error: StorageError, missing: dict[str, StorageError]) -> None:
    logger.error(
        "%s is left out, and its partitions are offline: %s; mend it and restart the node",
        disk.describe(""),
        error,
    )
    missing[disk.describe("")] = error


async def _assemble(
    layout: Layout,
    owned: dict[str, _Owned],
    opened: dict[str, LogDirectory],
    missing: dict[str, StorageError],
    named: dict[str, str],
    epochs: EpochKeeper,
) -> Storage:
    meta = owned[layout.metadata_dir].meta
    directories = {owned[path].id: opened[path] for path in layout.log_dirs if path in opened}
    if not directories:
        told = "; ".join(str(error) for error in missing.values())
        raise StorageError(f"none of log.dirs can be used: {told}")
    # a new directory may have replaced one that is lost with all its data
    is_whole = not missing and not any(each.is_new for each in owned.values())
    previous_epoch = None
    if is_whole and await epochs.misses_none(directories):
        previous_epoch = last_epoch(directories.values())
        if previous_epoch is None:
            previous_epoch = await epochs.read(_boots(directories))
    logs = LogDirectories(directories, missing)
    return Storage(meta, opened[layout.metadata_dir], directories, logs, named, epochs, previous_epoch)
