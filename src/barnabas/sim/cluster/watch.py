"""What is seen of the nodes of a cluster from outside, and becomes history.

Every image that a node publishes is noted by a digest of its contents, and its contents where no node has
published the same before. A process that is dead but whose tasks have not ended yet is not listened to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b

from barnabas.broker.quorum.driver import WriteSnapshot
from barnabas.broker.quorum.quorum import MetadataQuorum
from barnabas.broker.storage.formatting import METADATA_DIRECTORY
from barnabas.core.disk import Buffer
from barnabas.core.errors import BarnabasError
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log.checkpoints import parse_checkpoint
from barnabas.log.names import LOG_START_CHECKPOINT
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import TOPIC_RESOURCE, ClusterImage
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.metadata.parts import TopicImage
from barnabas.metadata.records import (
    AbortTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from barnabas.metadata.snapshot_records import snapshot_records
from barnabas.protocol.schema import Message
from barnabas.raft.snapshot import SnapshotId
from barnabas.raft.voters import VoterSet
from barnabas.records.batch import BatchHeader
from barnabas.records.reader import read_batch, read_batches
from barnabas.sim.cluster.events import (
    BatchSeen,
    BrokerSeen,
    ImageSeen,
    LeaderLog,
    Led,
    LogSeen,
    Published,
    Reached,
    TopicSeen,
)
from barnabas.sim.history import History
from barnabas.sim.machine import Machine, TwinWatch

NO_TOPICS = ClusterImage().topics_by_id


class ClusterWatch(TwinWatch):
    """Watches all nodes of a simulation."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._seen: set[tuple[int, int, str]] = set()
        self._committed: dict[tuple[int, int], int] = {}
        self._topics: dict[TopicImage, bytes] = {}  # digests

    def opened(self, machine: Machine, quorum: MetadataQuorum) -> None:
        super().opened(machine, quorum)
        _Watched(self, machine, quorum)

    def ended(self, machine: Machine) -> None:
        committed = self._committed.get((machine.node, machine.life), -1)
        batches = read_metadata_log(machine.drive.files)
        self._history.add(LogSeen(_now(), machine.node, machine.life, committed, batches))

    def published(self, machine: Machine, life: int, image: ClusterImage) -> None:
        digest = self._digest(image)
        key = image.offset, image.epoch, digest
        if key not in self._seen:
            self._seen.add(key)
            self._history.add(ImageSeen(_now(), machine.node, *key, _brokers(image), _topics(image)))
        self._committed[machine.node, life] = image.offset
        self._history.add(Published(_now(), machine.node, life, *key))

    def led(self, machine: Machine, life: int, epoch: int) -> None:
        self._history.add(Led(_now(), machine.node, life, epoch))
        batches = read_metadata_log(machine.drive.files)
        self._history.add(LeaderLog(_now(), machine.node, life, epoch, batches))
        self.reached(machine, "elections")

    def reached(self, machine: Machine, what: str) -> None:
        self._history.add(Reached(_now(), machine.node, what))

    def _digest(self, image: ClusterImage) -> str:
        """A hash of everything in an image but its offset and epoch."""
        whole = blake2b(digest_size=8)
        for record in snapshot_records(image._replace(topics_by_id=NO_TOPICS)):
            whole.update(encode_record(record))
        for topics in image.topics_by_id.shards():
            for _, topic in sorted(topics.items()):
                known = self._topics.get(topic)
                if known is None:
                    known = self._topics[topic] = _topic_digest(topic)
                whole.update(known)
        return whole.hexdigest()


class _Watched:
    """One process of a node."""

    def __init__(self, watch: ClusterWatch, machine: Machine, quorum: MetadataQuorum) -> None:
        self._watch = watch
        self._machine = machine
        self._life = machine.life
        self._quorum = quorum
        self._led_epoch = -1
        quorum.metadata.subscribe(self._published)
        self._twin_append = quorum.driver.on_append
        quorum.driver.on_append = self._append
        quorum.driver.on_truncate = lambda end_offset: self._reached("truncations")
        self._install, quorum.driver.install = quorum.driver.install, self._installed
        self._lost, quorum.driver.on_lost = quorum.driver.on_lost, self._rolled_back
        self._changed, quorum.driver.on_change = quorum.driver.on_change, self._noticed
        self._gone_epoch = -1  # whose leader was found gone

    @property
    def _is_alive(self) -> bool:
        return self._machine.is_up and self._machine.life == self._life

    def _reached(self, what: str) -> None:
        if self._is_alive:
            self._watch.reached(self._machine, what)

    async def _installed(self, snapshot_id: SnapshotId, write: WriteSnapshot) -> tuple[VoterSet, int]:
        installed = await self._install(snapshot_id, write)
        self._reached("snapshot loads")
        return installed

    def _rolled_back(self, reason: BarnabasError) -> None:
        if self._quorum.controller.decided.offset > self._quorum.metadata.image.offset:
            self._reached("roll-backs")
        self._lost(reason)

    def _noticed(self) -> None:
        raft = self._quorum.driver.core
        if raft.suspicion.is_gone and raft.epoch != self._gone_epoch:
            self._gone_epoch = raft.epoch
            self._reached("leaders found gone")
        self._changed()

    def _published(self, image: ClusterImage, delta: Delta) -> None:
        if self._is_alive:
            self._watch.published(self._machine, self._life, image)

    def _append(self, base_offset: int, epoch: int, batches: Sequence[Buffer]) -> None:
        if self._twin_append is not None:
            self._twin_append(base_offset, epoch, batches)
        if self._is_alive and epoch != self._led_epoch:
            self._led_epoch = epoch
            self._watch.led(self._machine, self._life, epoch)
        for batch in batches:
            if not BatchHeader.parse(batch).is_control:
                for record in read_batch(batch):
                    self._count(decode_record(record.value or b""))

    def _count(self, record: Message) -> None:
        if isinstance(record, EndTransactionRecord):
            self._reached("transactions")
        elif isinstance(record, AbortTransactionRecord):
            self._reached("aborted transactions")
        elif isinstance(record, RegisterBrokerRecord):
            self._reached("registrations")
        elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced:
            self._reached("fencings" if record.fenced > 0 else "unfencings")


def read_metadata_log(files: MemoryDisk) -> tuple[BatchSeen, ...]:
    """The metadata log on a disk, from its start up to its end or to what a crash has torn.

    Segments before the log's start are being deleted. A power loss may bring some of them back, and the next
    start removes them.
    """
    start_offset = _log_start(files)
    found: list[BatchSeen] = []
    for name, data in files.peek(METADATA_DIRECTORY).items():
        if not name.endswith(".log"):
            continue
        try:
            for header, _ in read_batches(data):
                found.append(
                    BatchSeen(header.base_offset, header.next_offset, header.leader_epoch, header.crc)
                )
        except BarnabasError:
            break
    return tuple(each for each in found if each.end_offset > start_offset)


def _log_start(files: MemoryDisk) -> int:
    data = files.peek("").get(LOG_START_CHECKPOINT, b"")
    offsets = parse_checkpoint(data, LOG_START_CHECKPOINT, lambda fields: (fields[0], int(fields[2])))
    return dict(offsets).get(CLUSTER_METADATA, 0)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _topic_digest(topic: TopicImage) -> bytes:
    whole = blake2b(encode_record(TopicRecord(name=topic.name, topic_id=topic.id)), digest_size=8)
    for index, partition in enumerate(topic.partitions):
        whole.update(encode_record(partition.to_record(topic.id, index)))
    return whole.digest()


def _brokers(image: ClusterImage) -> tuple[BrokerSeen, ...]:
    return tuple(
        BrokerSeen(each.id, each.epoch, each.fenced, each.in_controlled_shutdown)
        for _, each in sorted(image.brokers.items())
    )


def _topics(image: ClusterImage) -> tuple[TopicSeen, ...]:
    return tuple(
        TopicSeen(
            each.name,
            each.id.hex(),
            tuple(partition.leader for partition in each.partitions),
            tuple(partition.replicas for partition in each.partitions),
            tuple(sorted(image.config(TOPIC_RESOURCE, each.name).items())),
        )
        for each in sorted(image.topics_by_id.values(), key=lambda topic: topic.name)
    )
