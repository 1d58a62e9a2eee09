"""The partitions of this node: opened when they are first touched, led as the metadata says.

The image of the cluster decides what exists and who leads; this follows it. A topic that is gone takes its
partitions along (their files are removed in the background), a new leader epoch or new settings reach the
replicas that are open, and the others when they are opened. Files of a topic that was deleted and made anew
just before a crash are found by their topic id when the new one is first touched, and go then. What was in a
log directory that failed is lost until that is there again: it can neither be read nor written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.broker.replicas.replica import Replica
from barnabas.broker.settings.current_settings import TopicSettings
from barnabas.broker.traffic import TopicTraffic
from barnabas.core.errors import BarnabasError, InconsistentTopicId, StorageError, wire_error
from barnabas.log.partition import PartitionLog
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.metadata.parts import PartitionImage, TopicImage
from barnabas.metadata.publisher import MetadataPublisher

if TYPE_CHECKING:
    from barnabas.log.directories import LogDirectories

logger = logging.getLogger("barnabas.replicas")


class UnknownTopicOrPartition(BarnabasError):
    """No such topic, or no such partition of it."""

    wire = wire_error("UNKNOWN_TOPIC_OR_PARTITION")


class UnknownTopicId(BarnabasError):
    """No topic has that id."""

    wire = wire_error("UNKNOWN_TOPIC_ID")


class NotLeaderOrFollower(BarnabasError):
    """Another node leads that partition, or nobody does."""

    wire = wire_error("NOT_LEADER_OR_FOLLOWER")


class Replicas:
    """Every partition that this node has a part in. `fail` ends the node."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataPublisher,
        logs: LogDirectories,
        settings_of: Callable[[str], TopicSettings],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._logs = logs
        self._settings_of = settings_of
        self._fail = fail
        self._open: dict[tuple[bytes, int], Replica] = {}
        self._removals: dict[asyncio.Task[None], None] = {}
        # those in a directory that cannot be used, and why
        self._lost: dict[tuple[bytes, int], StorageError] = {}
        self.traffic: dict[bytes, TopicTraffic] = {}  # by topic id
        self.past_traffic = TopicTraffic()  # of topics that are gone
        # who else wants to hear of topics that are gone, and of others whose leaders or directories changed
        self.on_removed: list[Callable[[TopicImage], None]] = []
        self.on_changed: list[Callable[[TopicImage], None]] = []

    def __len__(self) -> int:
        return len(self._open)

    def topic(self, name: str, topic_id: bytes, *, by_id: bool) -> TopicImage:
        """The topic that a request speaks of, by name or by id as its version has it."""
        image = self._metadata.image
        found = image.topic_by_id(topic_id) if by_id else image.topic(name)
        if found is not None:
            return found
        if by_id:
            raise UnknownTopicId(f"no topic has the id {UUID(bytes=topic_id)}")
        raise UnknownTopicOrPartition(f"there is no topic {name!r}")

    def name_of(self, topic_id: bytes) -> str:
        """The name of the topic with this id; empty where there is none."""
        found = self._metadata.image.topic_by_id(topic_id)
        return "" if found is None else found.name

    def gone(self, name: str, topic_id: bytes, partition: int) -> BarnabasError:
        """The error for a partition of a topic of that name and id which was deleted since."""
        now = self._metadata.image.topic(name)
        if now is None or now.partition(partition) is None:
            return UnknownTopicOrPartition(f"there is no partition {name}-{partition} any more")
        return InconsistentTopicId(f"{name} has the id {UUID(bytes=now.id)}, not {UUID(bytes=topic_id)}")

    def opened(self, topic: TopicImage, partition: int) -> Replica | None:
        """A replica that has been used before, at no cost."""
        return self._open.get((topic.id, partition))

    async def leader(self, topic: TopicImage, partition: int) -> Replica:
        """The replica that this node leads."""
        replica = self._open.get((topic.id, partition))
        return replica if replica is not None else await self._open_replica(topic, partition)

    async def _open_replica(self, topic: TopicImage, partition: int) -> Replica:
        self._led(topic, partition)
        await asyncio.sleep(0)  # a request may name thousands of them: others have their turn in between
        log = await self._open_log(topic, partition, self._settings_of(topic.name))
        # Time has passed: the topic may be gone, or led by another node, have other settings, or be open.
        image, settings = self._led(topic, partition), self._settings_of(topic.name)
        key = (topic.id, partition)
        log.config = settings.log
        if key not in self._open:
            traffic = self.traffic.setdefault(topic.id, TopicTraffic())
            self._open[key] = Replica(topic, partition, image, log, settings.min_in_sync, traffic)
        return self._open[key]

    def with_files(self, topic: TopicImage) -> list[int]:
        """The partitions of a topic that have been used, by this process or an earlier one."""
        return [
            partition
            for name, partition in self._logs.partitions
            if name == topic.name and partition < len(topic.partitions)
        ]

    def traffic_of(self, topic: TopicImage) -> TopicTraffic:
        """What is counted of a topic; of one that is gone already, together with others of that kind."""
        return self.traffic.get(topic.id, self.past_traffic)

    @property
    def open(self) -> list[Replica]:
        """Those that have been used and are led here."""
        return list(self._open.values())

    def _led(self, topic: TopicImage, partition: int) -> PartitionImage:
        image = self._existing(topic, partition)
        if self._lost and (reason := self._lost.get((topic.id, partition))) is not None:
            raise StorageError(f"{topic.name}-{partition} cannot be reached: {reason}")
        if image.leader != self._node_id:
            raise NotLeaderOrFollower(
                f"node {image.leader} leads {topic.name}-{partition}, this is {self._node_id}"
            )
        return image

    def _existing(self, topic: TopicImage, partition: int) -> PartitionImage:
        now = self._metadata.image.topic_by_id(topic.id)
        if now is None:
            raise UnknownTopicOrPartition(f"{topic.name} was deleted")
        image = now.partition(partition)
        if image is None:
            raise UnknownTopicOrPartition(f"{topic.name} has no partition {partition}")
        return image

    async def _open_log(self, topic: TopicImage, partition: int, settings: TopicSettings) -> PartitionLog:
        topic_id = UUID(bytes=topic.id)
        for _ in range(2):
            try:
                return await self._logs.partition(
                    topic.name, partition, topic_id=topic_id, config=settings.log
                )
            except InconsistentTopicId:
                self._existing(topic, partition)
                logger.warning(
                    "%s-%d has the files of a topic that was deleted: they go", topic.name, partition
                )
                await self._logs.delete_partition(topic.name, partition, keep=topic_id)
        raise UnknownTopicOrPartition(f"{topic.name}-{partition} is made anew at this moment")

    def topic_removed(self, topic: TopicImage) -> None:
        """A topic was deleted: nobody waits for it any more, and its files go."""
        name = topic.name
        self.past_traffic.take(self.traffic.pop(topic.id, TopicTraffic()))
        gone = UnknownTopicOrPartition(f"{name} was deleted")
        for partition in range(len(topic.partitions)):
            self._lost.pop((topic.id, partition), None)
            replica = self._open.pop((topic.id, partition), None)
            if replica is not None:
                replica.marks.end(gone)
            # each at once: whoever creates a topic of that name next must find its place in line taken
            task = asyncio.get_running_loop().create_task(self._remove(name, partition))
            self._removals[task] = None
            task.add_done_callback(self._removals.pop)
        for tell in self.on_removed:
            tell(topic)

    async def _remove(self, name: str, partition: int) -> None:
        now = self._metadata.image.topic(name)  # it may have been made anew, and be in use already
        try:
            await self._logs.delete_partition(
                name, partition, keep=None if now is None else UUID(bytes=now.id)
            )
        except StorageError as error:
            logger.error("the files of %s-%d could not be removed: %s", name, partition, error)
        except Exception as error:  # noqa: BLE001 - nothing awaits this task
            self._fail(error)

    def lose(self, name: str, partition: int, reason: StorageError) -> None:
        """The directory of a partition cannot be used: whoever waits there is told, and whoever comes."""
        topic = self._metadata.image.topic(name)
        if topic is None:
            return
        self._lost[topic.id, partition] = reason
        replica = self._open.pop((topic.id, partition), None)
        if replica is not None:
            replica.marks.end(reason)
        self._tell_of(topic)

    def is_lost(self, topic: TopicImage, partition: int) -> bool:
        """Whether a partition is in a directory that cannot be used."""
        return (topic.id, partition) in self._lost

    def moved(self, topic_id: bytes, partition: int, log: PartitionLog) -> None:
        """A partition is in another directory: who waits there goes on waiting, and finds it."""
        self._lost.pop((topic_id, partition), None)  # the directory that it was in may have failed meanwhile
        replica = self._open.get((topic_id, partition))
        topic = self._metadata.image.topic_by_id(topic_id)
        if replica is not None and topic is not None:
            replica.log = log
            replica.lead(topic.partitions[partition], replica.min_in_sync)

    def topic_changed(self, topic: TopicImage) -> None:
        """Leaders, epochs or settings of a topic are others now."""
        settings, topic_id = self._settings_of(topic.name), UUID(bytes=topic.id)
        for number, image in enumerate(topic.partitions):
            log = self._logs.opened(topic.name, number)  # recovered, perhaps, and touched by nobody yet
            if log is not None and log.topic_id == topic_id:
                log.config = settings.log
            replica = self._open.get((topic.id, number))
            if replica is None:
                continue
            if image.leader == self._node_id:
                replica.lead(image, settings.min_in_sync)
            else:
                del self._open[(topic.id, number)]
                replica.marks.end(NotLeaderOrFollower(f"node {image.leader} leads {topic.name}-{number} now"))
        self._tell_of(topic)

    def _tell_of(self, changed: TopicImage) -> None:
        for tell in self.on_changed:
            tell(changed)

    def wake_readers(self) -> None:
        """Have every long poll answered with what there is."""
        for replica in self._open.values():
            replica.marks.wake_readers()

    async def set_strays_aside(self) -> None:
        """Put directories out of the way that are of no topic: of one that was deleted before its files were
        gone, or of one that the metadata has lost. Which of the two is for a person to judge."""
        for name, partition in self._logs.partitions:
            topic = self._metadata.image.topic(name)
            if (topic is None or topic.partition(partition) is None) and name != CLUSTER_METADATA:
                logger.warning("%s-%d is of no topic that exists; it is kept as ...-stray", name, partition)
                await self._logs.set_aside(name, partition)

    async def close(self) -> None:
        """Wait for removals that are under way."""
        await asyncio.gather(*self._removals)
