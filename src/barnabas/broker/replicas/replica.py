"""One partition on this node, in its role: appends under the leader's epoch, and the high watermark.

Only a leading replica takes appends and moves the high watermark, by the leader's rules (see `leader_state`).
Without other replicas, the high watermark follows its own log end. Becoming leader does not move the high
watermark: the value of the checkpoint or of the last leader holds until the rules allow more. A following
replica keeps its log open for the records of its leader.

`marks` belongs to one unbroken leadership. When that ends, all requests waiting there are answered, and the
next leadership begins with new marks: an append that finds other marks than before has outlived the
leadership in which it began.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.replicas.leader_context import LeaderContext
from barnabas.broker.replicas.purgatory import Marks
from barnabas.broker.replicas.roles import (
    Following,
    Leading,
    NotLeaderOrFollower,
    Offline,
    Role,
    require_legal,
)
from barnabas.broker.traffic import TopicTraffic
from barnabas.core.errors import BarnabasError, FencedLeaderEpoch, wire_error
from barnabas.log.partition import Appended, PartitionLog
from barnabas.log.producers import Guard, Origin
from barnabas.log.reading import ENDLESS
from barnabas.metadata.parts import TopicImage
from barnabas.records.batch import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.broker.replicas.fetch_sessions import Known
    from barnabas.broker.replicas.leader_state import FollowerLag, LeaderState


class UnknownLeaderEpoch(BarnabasError):
    """A client knows of a newer leader than this node does."""

    wire = wire_error("UNKNOWN_LEADER_EPOCH")


class NotEnoughReplicas(BarnabasError):
    """The ISR is smaller than min.insync.replicas."""

    wire = wire_error("NOT_ENOUGH_REPLICAS")


class NotEnoughReplicasAfterAppend(BarnabasError):
    """The ISR became smaller than min.insync.replicas after the records were written."""

    wire = wire_error("NOT_ENOUGH_REPLICAS_AFTER_APPEND")


class Replica:
    """One partition; `leader_epoch` is the epoch of its latest role."""

    __slots__ = (
        "_context",
        "_leader",
        "leader_epoch",
        "log",
        "marks",
        "name",
        "partition",
        "role",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        topic: TopicImage,
        partition: int,
        role: Leading | Following,
        log: PartitionLog,
        traffic: TopicTraffic,
        context: LeaderContext,
    ) -> None:
        self._context = context
        self.name = topic.name
        self.topic_id = topic.id
        self.partition = partition
        self.log = log
        self.traffic = traffic
        self.marks = Marks()
        self.leader_epoch = role.leader_epoch
        self._leader: LeaderState | None = None  # None without other replicas
        self.role: Role = role
        if isinstance(role, Leading):
            log.begin_leading(role.leader_epoch)
            self._lead(role, log.end_offset)
        else:
            log.refuse_epochs_before(role.leader_epoch)

    # ---- its role

    def become(self, role: Role) -> None:
        """Change to the role that the metadata or a failed directory demands."""
        before = self.role
        if role == before:
            return
        require_legal(before, role, f"{self.name}-{self.partition}")
        self.marks.wake_resting()
        self.role = role
        if isinstance(before, Leading) and not isinstance(role, Leading):
            self.marks.end(self.refusal())
            self.marks = Marks()
            if self._leader is not None:
                self._leader.end()
                self._leader = None
        if isinstance(role, Offline):
            return
        has_begun = role.leader_epoch != self.leader_epoch
        self.leader_epoch = role.leader_epoch
        if isinstance(role, Following):
            self.log.refuse_epochs_before(role.leader_epoch)
            return
        if has_begun or not isinstance(before, Leading):
            self.log.begin_leading(role.leader_epoch)
            self.marks.wake_readers()  # readers of the epoch before must be answered
        log = self.log
        own_end = max(log.high_watermark, log.held_end) if isinstance(before, Leading) else log.end_offset
        self._lead(role, own_end)

    def _lead(self, role: Leading, own_end: int) -> None:
        """Lead with these other replicas; `own_end` is the offset up to which this node has the log."""
        leader = self._leader
        if not role.followers:
            if leader is not None:
                leader.end()
            self._leader = None
            self._committed(own_end, 0 if leader is None else leader.committed_bytes(own_end))
            self.check_deletions()
            return
        if leader is None:
            # a node without replicated partitions does not need it
            from barnabas.broker.replicas.leader_state import LeaderState, Place

            # the number of bytes beyond the high watermark is unknown: readers look again when it moves
            unread_bytes = ENDLESS if own_end > self.log.high_watermark else 0
            place = Place(self.topic_id, self.partition, self.name)
            leader = LeaderState(self._context, place, role, own_end, unread_bytes, self._apply_rules)
            self._leader = leader
        else:
            leader.appended(own_end, 0)
            leader.take_role(role, self.log.end_offset)
        leader.tell_recovered()
        self._apply_rules()
        self.check_deletions()

    def moved_to(self, log: PartitionLog) -> None:
        """The partition is in another directory now; requests that wait here go on waiting."""
        self.log = log
        role = self.role
        if isinstance(role, Leading):
            log.begin_leading(role.leader_epoch)
            self._lead(role, log.held_end)
        else:
            log.refuse_epochs_before(self.leader_epoch)

    def refusal(self) -> BarnabasError:
        """The error for requests that only a leader serves."""
        role = self.role
        if isinstance(role, Offline):
            return role.reason
        leader = f"node {role.leader}" if isinstance(role, Following) else "a later epoch of this node"
        return NotLeaderOrFollower(f"{leader} leads {self.name}-{self.partition} now")

    def check_epoch(self, known_epoch: int) -> None:
        """Refuse a client with another leader epoch; -1 is a client that names none."""
        if known_epoch != self.leader_epoch:
            require_epoch(self.name, self.partition, known_epoch, self.leader_epoch)

    # ---- appends

    async def append(self, batch: memoryview, *, all_in_sync: bool, guard: Guard | None = None) -> Appended:
        """Append a client's batch. `all_in_sync` stands for acks=all; `guard` is the verification of a batch
        that begins a transaction."""
        marks = self.marks
        while True:
            role = self.role
            if not isinstance(role, Leading):
                raise self.refusal()
            if all_in_sync and role.is_under_min:
                raise self._not_enough(role)
            try:
                appended = await self.log.append_as_leader(batch, role.leader_epoch, guard=guard)
                break
            except FencedLeaderEpoch:
                continue  # the epoch changed while the append waited for the log's lock; nothing was appended
        if not appended.is_duplicate:
            self.traffic.bytes_in += len(batch)
            self.traffic.messages_in += appended.last_offset - appended.first_offset + 1
        if self.marks is not marks:
            if all_in_sync:
                raise self.refusal()
            return appended
        # not the end of the log: batches that others append meanwhile may still have to be synced
        # (flush.messages)
        if self._leader is None and not marks.end_polls:
            self._committed(appended.last_offset + 1, appended.stored_bytes)  # usual, with one call less
        else:
            self._held(appended.last_offset + 1, appended.stored_bytes)
        return appended

    async def append_own(self, data: bytearray, *, transaction_version: int = 0) -> Appended:
        """Append this node's own records in the current epoch: a coordinator's records, or markers, which
        carry the transaction version under which they were written."""
        role, marks = self.role, self.marks
        if not isinstance(role, Leading):
            raise self.refusal()
        if role.is_under_min:
            raise self._not_enough(role)
        try:
            appended = await self.log.append_as_leader(
                data, role.leader_epoch, Origin.COORDINATOR, transaction_version=transaction_version
            )
        except FencedLeaderEpoch:
            raise self.refusal() from None
        if self.marks is not marks:
            raise self.refusal()
        self._held(appended.last_offset + 1, appended.stored_bytes)
        return appended

    def _not_enough(self, role: Leading) -> NotEnoughReplicas:
        return NotEnoughReplicas(
            f"{self.name}-{self.partition}: {len(role.isr)} of {role.min_in_sync} in-sync replicas"
        )

    def not_enough_after_append(self) -> NotEnoughReplicasAfterAppend:
        """The error for an ISR that has become too small since the append."""
        return NotEnoughReplicasAfterAppend(
            f"{self.name}-{self.partition} was appended to, and has fewer in-sync replicas now than "
            "min.insync.replicas asks for"
        )

    # ---- deletions

    @property
    def low_watermark(self) -> int:
        """The low watermark: all replicas whose brokers are not fenced have deleted the records before it."""
        return self.log.start_offset if self._leader is None else self._leader.low_watermark(self.log)

    def deleted(self, offset: int) -> asyncio.Future[None]:
        """A future that is done when the low watermark reaches `offset`, and fails when the leadership
        ends."""
        if not isinstance(self.role, Leading):
            raise self.refusal()
        return self.marks.deleted(offset)

    def started_later(self) -> None:
        """Records were deleted from the log: wake the followers, which must learn of it."""
        self.marks.wake_resting()

    def check_deletions(self) -> None:
        """Complete waiting deletions: a log start offset has moved, or a broker is gone."""
        deletions = self.marks.deletions
        if deletions:
            deletions.reached(self.low_watermark)

    # ---- the high watermark

    def committed(self, offset: int) -> asyncio.Future[None]:
        """A future that is done when the high watermark reaches `offset`, and fails when the leadership
        ends."""
        if not isinstance(self.role, Leading):
            raise self.refusal()
        return self.marks.committed(offset)

    async def count_written(self) -> None:
        """Sync the log as flush.messages requires, and count all of it as held by the leader. After a failed
        append or a crash, the log may have records that were written but not synced."""
        end_offset = self.log.end_offset
        await self.log.flush_messages_due(end_offset)
        if isinstance(self.role, Leading):
            self._held(end_offset, 0)

    def require_follower(self, node_id: int, known_epoch: int) -> None:
        """Refuse a node that is not a follower. One that names an epoch may have later metadata, and will
        retry."""
        role = self.role
        if isinstance(role, Leading) and node_id in role.followers:
            return
        told = f"node {node_id} does not follow this node with a replica of {self.name}-{self.partition}"
        raise UnknownLeaderEpoch(told) if known_epoch >= 0 else NotLeaderOrFollower(told)

    def follower_fetched(
        self, node_id: int, end_offset: int, *, start_offset: int = -1, broker_epoch: int = -1
    ) -> None:
        """A follower fetches from `end_offset`: it has everything before. Its log starts at
        `start_offset`."""
        leader = self._leader
        if leader is None:
            return
        if leader.fetched(node_id, end_offset, start_offset, broker_epoch, self.log):
            self._apply_rules()
        if self.marks.deletions:
            self.check_deletions()

    def has_told_all(self, node_id: int, known: Known) -> bool:
        """Whether a follower has the whole log and the latest offsets, by its last request and answer."""
        leader, log, ask = self._leader, self.log, known.want.ask
        return (
            leader is not None
            and ask.fetch_offset == log.end_offset
            and known.high_watermark == log.high_watermark
            and known.log_start_offset == log.start_offset
            and ask.current_leader_epoch == self.leader_epoch
            and leader.is_settled(node_id, ask.fetch_offset)
        )

    def follower_was_caught_up(self, node_id: int, at: float) -> None:
        """A follower that has the whole log sent a request at that time."""
        if self._leader is not None:
            self._leader.was_caught_up(node_id, at)

    def check_lag(self) -> None:
        """Remove lagging followers from the ISR, and stop waiting for those outside of it."""
        leader = self._leader
        if leader is not None:
            if self.marks.resting and self.log.end_offset > leader.own_end:
                self.marks.wake_resting()  # an append is still being synced, and has woken no follower yet
            leader.check_lag(self.log)
            if self.log.high_watermark < self.log.end_offset:
                self._apply_rules()

    def brokers_changed(self) -> None:
        """Brokers were fenced or shut down: the high watermark may go by fewer replicas."""
        if self._leader is not None:
            if self.log.high_watermark < self.log.end_offset:
                self._apply_rules()
            self.check_deletions()

    def follower_lags(self) -> Iterable[FollowerLag]:
        """How far the followers are behind; empty without followers, or where another node leads."""
        return () if self._leader is None else self._leader.lags(self.log)

    @property
    def is_committed_by_enough(self) -> bool:
        """Whether the committed records have reached at least min.insync.replicas replicas."""
        return self._leader is None or not self._leader.is_under_min

    @property
    def epoch_start(self) -> int:
        """The start offset of this leader's epoch. Consumers are not shown an end before it, since a newly
        elected leader may not know yet how far records are committed."""
        return self.log.start_of_epoch(self.leader_epoch)

    def _held(self, offset: int, new_bytes: int) -> None:
        """This node, the leader, has everything before `offset`; `new_bytes` of it are new."""
        marks = self.marks
        if marks.end_polls or marks.resting:
            marks.end_moved(new_bytes)
        leader = self._leader
        if leader is None:
            self._committed(offset, new_bytes)
            return
        leader.appended(offset, new_bytes)
        if leader.may_commit_more(self.log.high_watermark):
            self._apply_rules()

    def _apply_rules(self) -> None:
        leader, log = self._leader, self.log
        if leader is None:
            return
        offset = leader.committed_end(log)
        if offset > log.high_watermark:
            self._committed(offset, leader.committed_bytes(offset))

    def _committed(self, offset: int, new_bytes: int) -> None:
        """Move the high watermark to `offset`, and wake readers of `new_bytes`."""
        log = self.log
        if log.advance_high_watermark(offset) or new_bytes:
            self.marks.moved(log.high_watermark, new_bytes)
            if self.marks.stable_polls:
                self.marks.stable_moved(log.last_stable_offset)


def require_epoch(topic: str, partition: int, known_epoch: int, leader_epoch: int) -> None:
    """Refuse a client with another leader epoch; -1 is a client that names none."""
    if known_epoch in (NO_LEADER_EPOCH, leader_epoch):
        return
    if known_epoch < leader_epoch:
        raise FencedLeaderEpoch(
            f"leader epoch {known_epoch} of {topic}-{partition} is over; {leader_epoch} is the current one"
        )
    raise UnknownLeaderEpoch(f"leader epoch {known_epoch} of {topic}-{partition} is not known here yet")
