"""Decides in which log directory each partition of this node is, and keeps the metadata up to date with it.

The files decide. Where they are in another directory than the metadata says, the controller is told before
this node becomes active, so that it leads what it has. A partition without files gets a directory: the one in
the metadata, if that is in use, else one that is chosen here and reported. If the metadata names a directory
that is gone for good, the partition is created anew, empty, but does not lead before an operator elects it
uncleanly. If a directory is only missing, the partition may be in it, and is offline until the directory is
back.

A node with one directory has nothing to choose: the controller assigns it when a partition is created.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from barnabas.broker.cluster.membership import Membership
from barnabas.broker.replicas.replicas import Replicas
from barnabas.broker.storage.storage import Storage
from barnabas.core.errors import BarnabasError, StorageError
from barnabas.metadata.delta import Delta
from barnabas.metadata.directories import directory_of
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, PartitionImage, TopicImage
from barnabas.metadata.publisher import MetadataPublisher

logger = logging.getLogger("barnabas.replicas")

Places = dict[tuple[bytes, int], UUID]

_NOT_CHOSEN = (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)


class Placement:
    """Places new partitions after the initial `survey`. `fail` ends the node."""

    def __init__(
        self,
        metadata: MetadataPublisher,
        storage: Storage,
        replicas: Replicas,
        membership: Membership,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._node_id = membership.node_id
        self._metadata = metadata
        self._storage = storage
        self._replicas = replicas
        self._membership = membership
        self._fail = fail
        self._untold: Places = {}
        self._telling: asyncio.Task[None] | None = None

    def survey(self) -> tuple[Places, Places]:
        """Compare directories and metadata at start: returns the directories to report, and those of lost
        partitions that will be created anew."""
        found: Places = {}
        anew: Places = {}
        own = self._storage.directories
        only = next(iter(own)).bytes if len(own) == 1 else None
        for topic, number, partition in self._metadata.image.partitions_assigned(self._node_id):
            told = directory_of(partition, self._node_id)
            if told == only:
                continue
            there = self._found(topic.name, number)
            if there is None and (named := UUID(bytes=told)) in own:
                self._storage.place(topic.name, number, named)
            elif there is None:
                self._without_files(topic, number, told, found, anew)
            elif there.bytes != told:
                found[topic.id, number] = there
        return found, anew

    def _found(self, name: str, partition: int) -> UUID | None:
        directories = self._storage.directories.items()
        return next((each for each, directory in directories if (name, partition) in directory), None)

    def _without_files(
        self, topic: TopicImage, number: int, told: bytes, found: Places, anew: Places
    ) -> None:
        missing = self._storage.logs.missing
        if missing:
            where, reason = next(iter(missing.items()))
            self._replicas.take_offline(
                topic.name, number, StorageError(f"it may be in {where}, which is left out: {reason}")
            )
        elif told in _NOT_CHOSEN:
            found[topic.id, number] = self._storage.place(topic.name, number)
        else:
            logger.error(
                "%s-%d was in a directory that is not there any more: it will be empty; put that directory "
                "back and restart the node, or elect a leader uncleanly, or delete the topic",
                topic.name,
                number,
            )
            anew[topic.id, number] = self._storage.place(topic.name, number)

    def follow(self) -> None:
        """Place every partition that is created from now on."""
        if not self._storage.logs.is_single:
            self._metadata.subscribe(self._published)

    def _published(self, image: ClusterImage, delta: Delta) -> None:
        for topic_id, number in delta.changed_partitions:
            topic, before = image.topics_by_id[topic_id], delta.base.topic_by_id(topic_id)
            partition, old = topic.partitions[number], None if before is None else before.partition(number)
            is_placed = old is not None and old.replicas == partition.replicas
            if self._node_id in partition.replicas and not is_placed:
                self._settle(topic, number, partition)
        if self._untold and self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    def _settle(self, topic: TopicImage, number: int, partition: PartitionImage) -> None:
        told = directory_of(partition, self._node_id)
        there = self._storage.place(topic.name, number, UUID(bytes=told))
        if there.bytes != told:
            self._untold[topic.id, number] = there

    async def _tell(self) -> None:
        try:
            while self._untold:
                places, self._untold = self._untold, {}
                await self._membership.assign_surely(places)
        except BarnabasError as error:  # the node stops, or has no space for its metadata
            logger.warning("the metadata will be told at the next start where new partitions are: %s", error)
        except Exception as error:  # noqa: BLE001 - nothing awaits this task
            self._fail(error)
        finally:
            self._telling = None

    async def close(self) -> None:
        """Wait for reports that are under way."""
        if self._telling is not None:
            await asyncio.wait((self._telling,))

    async def abandon(self) -> None:
        """Cancel reports that are under way."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait((self._telling,))
