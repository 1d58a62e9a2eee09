"""The replicas of this node, each in the role that the metadata gives it.

The only replica of a partition is opened when a request first needs it. A replica of a replicated partition
is opened by its role, in the background, one after another: a leader has to watch for lagging followers and a
follower has to fetch, even if no request ever touches them. Each open replica is either among the leading or
among the following ones; `_offline` has those that cannot be opened.

When a topic is deleted, its partitions end (their files are removed in the background). A new leader epoch or
new settings reach the open replicas at once, and the others when they are opened. After a crash, a directory
may have files of a topic that was deleted and created again: the topic id tells them apart when the new
partition is opened, and the old files are removed then. A partition whose log directory failed is offline
until the directory is there again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.broker.replicas.leader_context import LeaderContext
from barnabas.broker.replicas.replica import Replica, require_epoch
from barnabas.broker.replicas.roles import (
    Following,
    Leading,
    NotLeaderOrFollower,
    Offline,
    Role,
    role_of,
)
from barnabas.broker.settings.current_settings import TopicSettings
from barnabas.broker.traffic import ReplicationTraffic, TopicTraffic
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError, InconsistentTopicId, StorageError, wire_error
from barnabas.log.partition import PartitionLog
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.metadata.parts import PartitionImage, TopicImage
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.metadata.records import NO_LEADER
from barnabas.records.batch import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from barnabas.broker.replicas.refused_batches import RefusedBatches
    from barnabas.log.directories import LogDirectories

logger = logging.getLogger("barnabas.replicas")

LEADERS_A_TURN = 200  # the followers of this many leaders are checked before other tasks run
OPEN_AGAIN_SECONDS = 1.0  # after a replica could not be opened


class UnknownTopicOrPartition(BarnabasError):
    """There is no such topic, or no such partition of it."""

    wire = wire_error("UNKNOWN_TOPIC_OR_PARTITION")


class UnknownTopicId(BarnabasError):
    """No topic has that id."""

    wire = wire_error("UNKNOWN_TOPIC_ID")


_Key = tuple[bytes, int]  # topic id and partition


class Replicas:
    """Every partition that this node has a replica of. `fail` ends the node."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataPublisher,
        logs: LogDirectories,
        settings_of: Callable[[str], TopicSettings],
        fail: Callable[[BaseException], None],
        context: LeaderContext,
    ) -> None:
        self._node_id = node_id
        self.context = context
        self._metadata = metadata
        self._logs = logs
        self._settings_of = settings_of
        self._fail = fail
        self._leading: dict[_Key, Replica] = {}
        self._following: dict[_Key, Replica] = {}
        # replicas in a directory that cannot be used
        self._offline: dict[_Key, Offline] = {}
        # replicated partitions to open, the task that opens them, and timers for those that failed
        self._to_open: dict[_Key, None] = {}
        self._opener: asyncio.Task[None] | None = None
        self._retries: dict[_Key, asyncio.TimerHandle] = {}
        self._is_closed = False
        self._removals: dict[asyncio.Task[None], None] = {}
        self.traffic: dict[bytes, TopicTraffic] = {}  # by topic id
        self.past_traffic = TopicTraffic()  # of deleted topics
        self.replication = ReplicationTraffic()
        self.refused: RefusedBatches | None = None  # None until a producer's batch is refused
        # callbacks for deleted topics, and for topics whose leaders or directories changed
        self.on_removed: list[Callable[[TopicImage], None]] = []
        self.on_changed: list[Callable[[TopicImage], None]] = []
        # callbacks for open replicas that took a role, a new one or the same again
        self.on_role: list[Callable[[Replica], None]] = []

    def __len__(self) -> int:
        return len(self._leading)

    def note_refused(self, topic_id: bytes, partition: int, batch: memoryview, error: BarnabasError) -> None:
        """Remember a refused batch if its producer will send it again."""
        if self.refused is None:
            from barnabas.broker.replicas.refused_batches import RefusedBatches

            self.refused = RefusedBatches()
        self.refused.add(topic_id, partition, batch, error)

    def is_led(self, image: PartitionImage) -> bool:
        """Whether this node leads a partition."""
        return image.leader == self._node_id

    def topic(self, name: str, topic_id: bytes, *, by_id: bool) -> TopicImage:
        """The topic that a request names, by name or by id as its version does."""
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
        """The error for a partition whose topic was deleted: unknown, or created again with another id."""
        now = self._metadata.image.topic(name)
        if now is None or now.partition(partition) is None:
            return UnknownTopicOrPartition(f"there is no partition {name}-{partition} any more")
        return InconsistentTopicId(f"{name} has the id {UUID(bytes=now.id)}, not {UUID(bytes=topic_id)}")

    def opened(self, topic: TopicImage, partition: int) -> Replica | None:
        """A leading replica if it is open already."""
        return self._leading.get((topic.id, partition))

    def followed(self, topic: TopicImage, partition: int) -> Replica | None:
        """A following replica if it is open."""
        return self._following.get((topic.id, partition))

    async def leader(self, topic: TopicImage, partition: int, known_epoch: int = NO_LEADER_EPOCH) -> Replica:
        """The replica of a partition that this node leads. A client with another leader epoch gets the error
        for that first."""
        replica = self._leading.get((topic.id, partition))
        return replica if replica is not None else await self._open_leading(topic, partition, known_epoch)

    async def any_role(
        self, topic: TopicImage, partition: int, known_epoch: int = NO_LEADER_EPOCH
    ) -> Replica:
        """The replica of this node, leading or following: for tools that read single replicas."""
        image = self._usable(topic, partition)
        if self._node_id not in image.replicas:
            raise self._not_led(topic, partition, image)
        require_epoch(topic.name, partition, known_epoch, image.leader_epoch)
        key = (topic.id, partition)
        replica = self._leading.get(key) or self._following.get(key)
        return replica if replica is not None else await self._open_replica(topic, partition)

    async def _open_leading(self, topic: TopicImage, partition: int, known_epoch: int) -> Replica:
        self._require_led(topic, partition, known_epoch)
        replica = await self._open_replica(topic, partition)
        self._require_led(topic, partition, known_epoch)  # the metadata may have changed meanwhile
        return replica

    async def _open_replica(self, topic: TopicImage, partition: int) -> Replica:
        """Open a replica in the role that the metadata gives it once its log is open."""
        await asyncio.sleep(0)  # a request may name thousands of partitions: let other tasks run in between
        log = await self._open_log(topic, partition, self._settings_of(topic.name))
        # Meanwhile the topic may have been deleted, have another leader or other settings, or the replica be
        # open.
        image, settings = self._usable(topic, partition), self._settings_of(topic.name)
        key = (topic.id, partition)
        log.config = settings.log
        replica = self._leading.get(key) or self._following.get(key)
        if replica is not None:
            return replica
        role = role_of(image, self._node_id, settings.min_in_sync)
        if role is None:
            raise self._not_led(topic, partition, image)
        traffic = self.traffic.setdefault(topic.id, TopicTraffic())
        replica = Replica(topic, partition, role, log, traffic, self.context)
        self._enlist(key, replica)
        return replica

    def with_files(self, topic: TopicImage) -> list[int]:
        """The partitions of a topic that have a log on this node."""
        return [
            partition
            for name, partition in self._logs.partitions
            if name == topic.name and partition < len(topic.partitions)
        ]

    def traffic_of(self, topic: TopicImage) -> TopicTraffic:
        """The counters of a topic; deleted topics share one."""
        return self.traffic.get(topic.id, self.past_traffic)

    @property
    def open(self) -> list[Replica]:
        """The open replicas that this node leads."""
        return list(self._leading.values())

    @property
    def every(self) -> list[Replica]:
        """All open replicas, leading and following."""
        return [*self._leading.values(), *self._following.values()]

    def _require_led(self, topic: TopicImage, partition: int, known_epoch: int) -> None:
        image = self._usable(topic, partition)
        if image.leader != self._node_id:
            if self._node_id in image.replicas:
                require_epoch(topic.name, partition, known_epoch, image.leader_epoch)
            raise self._not_led(topic, partition, image)

    def _not_led(self, topic: TopicImage, partition: int, image: PartitionImage) -> NotLeaderOrFollower:
        return NotLeaderOrFollower(
            f"node {image.leader} leads {topic.name}-{partition}, this is {self._node_id}"
        )

    def _usable(self, topic: TopicImage, partition: int) -> PartitionImage:
        image = self._existing(topic, partition)
        if self._offline and (offline := self._offline.get((topic.id, partition))) is not None:
            raise StorageError(f"{topic.name}-{partition} cannot be reached: {offline.reason}")
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
                    "%s-%d has the files of a topic that was deleted; they are kept as ...-stray",
                    topic.name,
                    partition,
                )
                await self._logs.set_aside(topic.name, partition, keep=topic_id)
        raise UnknownTopicOrPartition(f"{topic.name}-{partition} is made anew at this moment")

    # ---- roles

    def _enlist(self, key: _Key, replica: Replica) -> None:
        """Put an open replica among those of its role."""
        role = replica.role
        if isinstance(role, Leading):
            self._following.pop(key, None)
            self._leading[key] = replica
        elif isinstance(role, Following):
            self._leading.pop(key, None)
            self._following[key] = replica
        else:
            self._leading.pop(key, None)
            self._following.pop(key, None)
        for tell in self.on_role:
            tell(replica)

    def _change(self, key: _Key, role: Role) -> Replica | None:
        """Change the role of a replica; None where the replica is not open."""
        replica = self._leading.get(key) or self._following.get(key)
        if replica is not None:
            replica.become(role)
            self._enlist(key, replica)
        return replica

    def topic_changed(self, topic: TopicImage, partitions: Iterable[int] | None = None) -> None:
        """These partitions of a topic have other leaders or epochs; None: the topic's settings have
        changed."""
        settings, topic_id = self._settings_of(topic.name), UUID(bytes=topic.id)
        for number in range(len(topic.partitions)) if partitions is None else partitions:
            image = topic.partitions[number]
            log = self._logs.opened(topic.name, number)  # recovered, perhaps, but not used yet
            if log is not None and log.topic_id == topic_id:
                log.config = settings.log
            key = (topic.id, number)
            if key in self._leading or key in self._following:
                role = role_of(image, self._node_id, settings.min_in_sync)
                self._change(key, role or Offline(self._not_led(topic, number, image)))
            elif self._is_to_open(key, image):
                self._open_soon(key)
        self._tell_of(topic)

    def _is_to_open(self, key: _Key, image: PartitionImage) -> bool:
        """Whether a replica has to be open because its partition is replicated; without a leader it can
        wait."""
        return (
            image.leader != NO_LEADER
            and len(image.replicas) > 1
            and self._node_id in image.replicas
            and key not in self._offline
        )

    # ---- replicated partitions

    def open_replicated(self) -> None:
        """Open the replicas of replicated partitions in the background; later ones are opened when they are
        published."""
        for topic, number, image in self._metadata.image.partitions_assigned(self._node_id):
            key = (topic.id, number)
            if key not in self._following and key not in self._leading and self._is_to_open(key, image):
                self._open_soon(key)

    def _open_soon(self, key: _Key) -> None:
        if self._is_closed:
            return
        if (retry := self._retries.pop(key, None)) is not None:
            retry.cancel()
        self._to_open[key] = None
        if self._opener is None:
            self._opener = asyncio.get_running_loop().create_task(self._open_waiting())

    async def _open_waiting(self) -> None:
        try:
            while self._to_open:
                key = next(iter(self._to_open))
                del self._to_open[key]
                await self._open_by_role(key)
        except Exception as error:  # noqa: BLE001 - nothing awaits this task
            self._fail(error)
        finally:
            self._opener = None

    async def _open_by_role(self, key: _Key) -> None:
        topic = self._metadata.image.topic_by_id(key[0])
        image = None if topic is None else topic.partition(key[1])
        if topic is None or image is None or not self._is_to_open(key, image):
            return  # the metadata has changed since
        try:
            await self._open_replica(topic, key[1])
        except (NotLeaderOrFollower, UnknownTopicOrPartition):
            return
        except BarnabasError as error:  # of the disk, or of settings that no log can have
            if self._is_closed:
                return
            logger.error("%s-%d cannot be opened: %s", topic.name, key[1], error)
            loop = asyncio.get_running_loop()
            self._retries[key] = loop.call_later(OPEN_AGAIN_SECONDS, self._open_soon, key)

    @property
    def is_opening(self) -> bool:
        """Whether replicas of replicated partitions are being opened."""
        return self._opener is not None

    def stop_opening(self) -> None:
        """Open no more replicas; the one that is being opened is finished."""
        self._is_closed = True
        self._to_open.clear()
        for retry in self._retries.values():
            retry.cancel()

    # ---- removed replicas and topics

    def assigned_otherwise(self, topic: TopicImage, partition: int, before: PartitionImage) -> None:
        """The metadata of a partition has changed: remove its files if the replica has moved to other
        nodes."""
        if self._node_id not in before.replicas or self._is_assigned(topic.id, partition):
            return
        key = (topic.id, partition)
        if self._offline.pop(key, None) is not None:
            return  # its files cannot be reached; they become stray when the directory is back
        logger.info("%s-%d has moved to other nodes: its files go", topic.name, partition)
        self._take_away(topic.name, partition, unless=lambda: self._is_assigned(topic.id, partition))

    def _is_assigned(self, topic_id: bytes, partition: int) -> bool:
        """Whether this node has a replica of a partition, by the current metadata."""
        topic = self._metadata.image.topic_by_id(topic_id)
        image = None if topic is None else topic.partition(partition)
        return image is not None and self._node_id in image.replicas

    def topic_removed(self, topic: TopicImage) -> None:
        """A topic was deleted: answer the requests that wait for it, and remove its files."""
        name = topic.name
        self.past_traffic.take(self.traffic.pop(topic.id, TopicTraffic()))
        gone = Offline(UnknownTopicOrPartition(f"{name} was deleted"))
        for partition in range(len(topic.partitions)):
            key = (topic.id, partition)
            self._offline.pop(key, None)
            self._change(key, gone)
            now = self._metadata.image.topic(name)  # a topic created again may be in use already
            self._take_away(name, partition, keep=None if now is None else UUID(bytes=now.id))
        for tell in self.on_removed:
            tell(topic)

    def _take_away(
        self, name: str, partition: int, keep: UUID | None = None, unless: Callable[[], bool] = lambda: False
    ) -> None:
        # a task for each at once: a topic created with the same name must queue behind the removal
        task = asyncio.get_running_loop().create_task(self._remove(name, partition, keep, unless))
        self._removals[task] = None
        task.add_done_callback(self._removals.pop)

    async def _remove(self, name: str, partition: int, keep: UUID | None, unless: Callable[[], bool]) -> None:
        try:
            await self._logs.delete_partition(name, partition, keep=keep, unless=unless)
        except StorageError as error:
            logger.error("the files of %s-%d could not be removed: %s", name, partition, error)
        except Exception as error:  # noqa: BLE001 - nothing awaits this task
            self._fail(error)

    # ---- directories

    def take_offline(self, name: str, partition: int, reason: StorageError) -> None:
        """The directory of a partition has failed: requests get an error, those that wait as well."""
        topic = self._metadata.image.topic(name)
        if topic is None:
            return
        offline = self._offline[topic.id, partition] = Offline(reason)
        self._change((topic.id, partition), offline)
        self._tell_of(topic)

    def is_offline(self, topic: TopicImage, partition: int) -> bool:
        """Whether a partition is in a failed directory."""
        return (topic.id, partition) in self._offline

    def moved(self, topic_id: bytes, partition: int, log: PartitionLog) -> None:
        """A partition is in another directory now; requests that wait there go on waiting."""
        key = (topic_id, partition)
        self._offline.pop(key, None)  # the directory that it was in may have failed meanwhile
        replica = self._leading.get(key) or self._following.get(key)
        topic = self._metadata.image.topic_by_id(topic_id)
        if replica is not None:
            replica.moved_to(log)
            self._enlist(key, replica)
        elif topic is not None and self._is_to_open(key, topic.partitions[partition]):
            self._open_soon(key)

    async def watch_lag(self, clock: Clock) -> None:
        """Remove lagging followers from the ISRs, for ever. It takes two comparisons for each follower, twice
        within the lag time."""
        while True:
            await clock.sleep(self.context.lag_s / 2)
            for number, replica in enumerate(self.open, 1):
                replica.check_lag()
                if number % LEADERS_A_TURN == 0:
                    await asyncio.sleep(0)

    def brokers_changed(self) -> None:
        """Brokers were fenced or shut down: the high watermarks may go by fewer replicas."""
        for replica in self._leading.values():
            replica.brokers_changed()

    def _tell_of(self, changed: TopicImage) -> None:
        for tell in self.on_changed:
            tell(changed)

    def wake_readers(self) -> None:
        """Answer every long poll with the data that there is."""
        for replica in self._leading.values():
            replica.marks.wake_readers()

    async def set_strays_aside(self) -> None:
        """Rename the directories for which this node has no replica: the topic was deleted before its files
        were removed, the partition has moved to other nodes, or the metadata has lost it. The operator has to
        judge which."""
        for name, partition in self._logs.partitions:
            if name == CLUSTER_METADATA:
                continue
            topic = self._metadata.image.topic(name)
            image = None if topic is None else topic.partition(partition)
            if image is None:
                logger.warning("%s-%d is of no topic that exists; it is kept as ...-stray", name, partition)
                await self._logs.set_aside(name, partition)
            elif self._node_id not in image.replicas:
                nodes = ", ".join(map(str, image.replicas))
                logger.warning("%s-%d is on nodes %s; it is kept as ...-stray", name, partition, nodes)
                await self._logs.set_aside(name, partition)

    async def close(self) -> None:
        """Open nothing more, and wait for running tasks."""
        self.stop_opening()
        if self._opener is not None:
            await asyncio.wait((self._opener,))
        await asyncio.gather(*self._removals)
