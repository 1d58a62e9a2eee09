"""A partition that this node leads: appends under the leader's epoch, reads, and the high watermark.

The high watermark is the smallest log end among the in-sync replicas; with this node as the only one, its
own. It moves only here, and whoever waits for it is woken then.
"""

from __future__ import annotations

from barnabas.broker.replicas.purgatory import Marks
from barnabas.broker.traffic import TopicTraffic
from barnabas.core.errors import BarnabasError, FencedLeaderEpoch, wire_error
from barnabas.log.partition import Appended, PartitionLog
from barnabas.log.producers import Guard, Origin
from barnabas.metadata.parts import PartitionImage, TopicImage


class UnknownLeaderEpoch(BarnabasError):
    """A client knows of a newer leader than this node does."""

    wire = wire_error("UNKNOWN_LEADER_EPOCH")


class NotEnoughReplicas(BarnabasError):
    """Fewer in-sync replicas than min.insync.replicas asks for."""

    wire = wire_error("NOT_ENOUGH_REPLICAS")


class Replica:
    """One partition, led."""

    __slots__ = (
        "in_sync_count",
        "leader_epoch",
        "log",
        "marks",
        "min_in_sync",
        "name",
        "partition",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        topic: TopicImage,
        partition: int,
        image: PartitionImage,
        log: PartitionLog,
        min_in_sync: int,
        traffic: TopicTraffic,
    ) -> None:
        self.name = topic.name
        self.topic_id = topic.id
        self.partition = partition
        self.log = log
        self.traffic = traffic
        self.marks = Marks()
        self.lead(image, min_in_sync)

    def lead(self, image: PartitionImage, min_in_sync: int) -> None:
        """Take (or keep) the lead as the metadata says."""
        self.leader_epoch = image.leader_epoch
        self.in_sync_count = len(image.isr)
        # a topic of fewer replicas could never have that many
        self.min_in_sync = min(min_in_sync, len(image.replicas))
        self.log.begin_epoch(image.leader_epoch, self.log.end_offset)
        self._committed(self.log.end_offset, 0)

    def check_epoch(self, known_epoch: int) -> None:
        """Refuse a client that talks to another leader; -1 is one that does not say."""
        if known_epoch in (-1, self.leader_epoch):
            return
        if known_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"leader epoch {known_epoch} is over; {self.leader_epoch} is the current one"
            )
        raise UnknownLeaderEpoch(f"leader epoch {known_epoch} is not known here yet")

    async def append(self, batch: memoryview, *, all_in_sync: bool, guard: Guard | None = None) -> Appended:
        """Append a client's batch; `all_in_sync` is what acks=all asks for, `guard` what it was verified with
        if it begins a transaction."""
        if all_in_sync and self.in_sync_count < self.min_in_sync:
            raise NotEnoughReplicas(
                f"{self.name}-{self.partition}: {self.in_sync_count} of {self.min_in_sync} in-sync replicas"
            )
        appended = await self.log.append_as_leader(batch, self.leader_epoch, guard=guard)
        if not appended.is_duplicate:
            self.traffic.bytes_in += len(batch)
            self.traffic.messages_in += appended.last_offset - appended.first_offset + 1
        # not to the end of the log: what others append meanwhile may still have to be synced (flush.messages)
        self._committed(appended.last_offset + 1, appended.stored_bytes)
        return appended

    async def append_own(self, data: bytearray, *, transaction_version: int = 0) -> Appended:
        """Append what this node itself has to write: records of a coordinator, or markers, which bear the
        transaction version that they were written under."""
        if self.in_sync_count < self.min_in_sync:
            raise NotEnoughReplicas(
                f"{self.name}-{self.partition}: {self.in_sync_count} of {self.min_in_sync} in-sync replicas"
            )
        appended = await self.log.append_as_leader(
            data, self.leader_epoch, Origin.COORDINATOR, transaction_version=transaction_version
        )
        self._committed(appended.last_offset + 1, appended.stored_bytes)
        return appended

    async def commit_written(self) -> int:
        """Commit everything that is in the log, and return where it ends. After an append that failed, and
        after a crash, the log may hold records that were written but not synced as flush.messages asks."""
        end_offset = self.log.end_offset
        await self.log.flush_messages_due(end_offset)
        self._committed(end_offset, 0)
        return end_offset

    def _committed(self, offset: int, new_bytes: int) -> None:
        """Every in-sync replica has what is before `offset`."""
        log = self.log
        if log.advance_high_watermark(offset) or new_bytes:
            self.marks.moved(log.high_watermark, new_bytes)
            if self.marks.stable_polls:
                self.marks.stable_moved(log.last_stable_offset)
