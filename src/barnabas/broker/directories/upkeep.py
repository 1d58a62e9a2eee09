"""Background work on the directories of a node: housekeeping, failed disks, cordoned directories.

Each directory is handled separately. A directory whose disk fails goes out of use at once (no request reaches
it any more), then the controller is told, and its files are released when the tasks that use them have ended.
Where the node cannot go on without it (it holds the metadata, or is the last), the node stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any
from uuid import UUID

from barnabas.broker.cluster.membership import Membership, RegistrationRefused
from barnabas.broker.replicas.replicas import Replicas
from barnabas.broker.settings.current_settings import CurrentSettings
from barnabas.broker.storage.storage import Storage
from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.core.clock import Clock
from barnabas.core.disk import DiskFailed, DiskFull, FileMissing, TooManyOpenFiles
from barnabas.core.errors import StorageError
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.log.config import CleanerSettings
from barnabas.log.directory import LogDirectory
from barnabas.log.housekeeping import Intervals, keep_house
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.metadata.versions import CORDONED_SINCE

logger = logging.getLogger("barnabas.node")

SAY_AGAIN_SECONDS = 60.0


class Upkeep:
    """The directories' background work of one node. `run` starts a background task, `fail` ends the node."""

    def __init__(
        self,
        storage: Storage,
        replicas: Replicas,
        membership: Membership,
        metadata: MetadataPublisher,
        settings: CurrentSettings,
        clock: Clock,
        *,
        run: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._storage = storage
        self._replicas = replicas
        self._membership = membership
        self._metadata = metadata
        self._settings = settings
        self._clock = clock
        self._run = run
        self._fail = fail
        self._houses: dict[UUID, asyncio.Task[None]] = {}
        self._said_at: dict[UUID, float] = {}
        storage.cordon(lambda: settings.broker.strings("cordoned.log.dirs"))
        for directory_id, directory in storage.all.items():
            directory.config_of = lambda topic: settings.of_topic(topic).log
            spare = storage.can_do_without(directory_id)
            directory.on_trouble = partial(self._in_trouble, directory_id, spare)

    # --- housekeeping

    def begin(self, settings: BrokerSettings) -> None:
        """Start housekeeping in every directory."""
        intervals = Intervals(
            checkpoint_ms=settings.integer("log.flush.offset.checkpoint.interval.ms"),
            retention_ms=settings.integer("log.retention.check.interval.ms"),
        )
        cleans = settings.boolean("log.cleaner.enable")
        for directory_id, directory in self._storage.all.items():
            cleaner = self._share if cleans and directory_id in self._storage.directories else None
            self._houses[directory_id] = self._run(keep_house(directory, self._clock, intervals, cleaner))

    def _share(self) -> CleanerSettings:
        """The share of one directory in the resources for compaction."""
        whole, count = self._settings.cleaner(), len(self._storage.directories)
        if count == 1:
            return whole
        return whole._replace(
            dedupe_buffer_bytes=whole.dedupe_buffer_bytes // count,
            max_bytes_per_second=whole.max_bytes_per_second / count,
        )

    # --- disks that fail

    def _in_trouble(self, directory_id: UUID, spare: bool, error: StorageError) -> None:
        """A disk call failed. A full disk or a lack of descriptors may pass, other failures do not."""
        if spare and isinstance(error, (DiskFailed, FileMissing)):
            self.failed(directory_id, error)
        elif isinstance(error, (DiskFull, TooManyOpenFiles, DiskFailed)):
            self._say(directory_id, error)

    def _say(self, directory_id: UUID, error: StorageError) -> None:
        """Log a failure now and then: clients hear of every failure, and try again."""
        now = self._clock.monotonic()
        if now >= self._said_at.get(directory_id, now):
            self._said_at[directory_id] = now + SAY_AGAIN_SECONDS
            logger.error("%s", error)

    def failed(self, directory_id: UUID, error: StorageError) -> None:
        """A directory has failed, and its content is in doubt: go on without it, if possible."""
        storage = self._storage
        if directory_id not in storage.all:
            return  # reported already
        if not storage.can_do_without(directory_id):
            self._fail(error)
            return
        directory, lost = storage.drop(directory_id, error)
        for name, partition in lost:
            self._replicas.take_offline(name, partition, error)
        logger.critical(
            "%s is out of use, and its %d partitions are offline; the rest goes on. %s; when the disk is "
            "mended or replaced, restart the node",
            directory.where,
            len(lost),
            error,
        )
        self._run(self._let_go(directory_id, directory, error))

    async def _let_go(self, directory_id: UUID, directory: LogDirectory, reason: StorageError) -> None:
        house = self._houses.pop(directory_id, None)
        if house is not None:
            house.cancel()
            await asyncio.gather(house, return_exceptions=True)
        if self._membership.epoch >= 0:
            await self._tell(self._membership.tell_failed(directory_id), "has failed")
        await directory.give_up(reason)

    # --- cordoned directories

    def follow_cordons(self) -> None:
        """Report the cordoned directories, now and when they change. Before metadata.version 4.3-IV0 the
        metadata cannot hold them: then the setting counts only for partitions that this node places itself.
        """
        self._cordon(self._settings.broker)
        self._settings.subscribe(self._cordon)

    def _cordon(self, settings: BrokerSettings) -> None:
        if self._metadata.image.metadata_version < CORDONED_SINCE:
            return
        directory_ids = self._storage.cordoned(settings.strings("cordoned.log.dirs"))
        broker = self._metadata.image.brokers.get(self._membership.node_id)
        if broker is None:  # the broker was unregistered, and reports nothing any more
            return
        if sorted(each.bytes for each in directory_ids) != sorted(broker.cordoned_log_dirs or ()):
            self._run(self._tell(self._membership.tell_cordoned(directory_ids), "is cordoned"))

    async def _tell(self, told: Awaitable[None], what: str) -> None:
        try:
            await told
        except (*NOT_COMMITTED, RegistrationRefused) as error:
            logger.error("the metadata will not tell which directory %s: %s", what, error)
