"""One partition on this node, in its role: appends under the leader's epoch, and the high watermark.

Only a leading replica takes appends and moves the high watermark, by the leader's rule (see `followers`).
Becoming leader does not move it: what a checkpoint or the last leader said holds until the rule allows more.
A following replica keeps its log open for the records of its leader.

`marks` belongs to one unbroken leadership. When that ends, all that waits there is told, and the next one
begins with new marks: an append that finds other marks than before has outlived the leadership it began in.
"""

from __future__ import annotations

import asyncio

from barnabas.broker.replicas.followers import Followers, high_watermark_of
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


class UnknownLeaderEpoch(BarnabasError):
    """A client knows of a newer leader than this node does."""

    wire = wire_error("UNKNOWN_LEADER_EPOCH")


class NotEnoughReplicas(BarnabasError):
    """Fewer in-sync replicas than min.insync.replicas asks for."""

    wire = wire_error("NOT_ENOUGH_REPLICAS")


class Replica:
    """One partition; `leader_epoch` is the latest that its role has named."""

    __slots__ = (
        "_followers",
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
    ) -> None:
        self.name = topic.name
        self.topic_id = topic.id
        self.partition = partition
        self.log = log
        self.traffic = traffic
        self.marks = Marks()
        self.leader_epoch = role.leader_epoch
        self._followers: Followers | None = None  # None where there are no other replicas
        self.role: Role = role
        if isinstance(role, Leading):
            log.begin_leading(role.leader_epoch)
            self._lead(role, log.end_offset)
        else:
            log.refuse_epochs_before(role.leader_epoch)

    # ---- its role

    def become(self, role: Role) -> None:
        """Take on the role that the metadata or a failed directory gives."""
        before = self.role
        if role == before:
            return
        require_legal(before, role, f"{self.name}-{self.partition}")
        self.role = role
        if isinstance(before, Leading) and not isinstance(role, Leading):
            self.marks.end(self.refusal())
            self.marks = Marks()
            self._followers = None
        if isinstance(role, Offline):
            return
        has_begun = role.leader_epoch != self.leader_epoch
        self.leader_epoch = role.leader_epoch
        if isinstance(role, Following):
            self.log.refuse_epochs_before(role.leader_epoch)
            return
        if has_begun or not isinstance(before, Leading):
            self.log.begin_leading(role.leader_epoch)
        log = self.log
        own_end = max(log.high_watermark, log.held_end) if isinstance(before, Leading) else log.end_offset
        self._lead(role, own_end)

    def _lead(self, role: Leading, own_end: int) -> None:
        """Apply the leader's rule to what this node holds, as the leader of these replicas."""
        followers = self._followers
        if not role.followers:
            self._followers = None
            self._committed(own_end, 0 if followers is None else followers.committed_bytes(own_end))
            return
        if followers is None:
            # how many bytes stand beyond the high watermark is not known: readers look when it moves
            has_more = own_end > self.log.high_watermark
            self._followers = Followers(own_end, ENDLESS if has_more else 0)
        else:
            followers.appended(own_end, 0)
            followers.keep(role.followers)
        self._apply_rule(role)

    def moved_to(self, log: PartitionLog) -> None:
        """The partition is in another directory now; all that waits here goes on waiting."""
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
        """Refuse a client that talks to another leader; -1 is one that does not say."""
        if known_epoch in (-1, self.leader_epoch):
            return
        if known_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"leader epoch {known_epoch} is over; {self.leader_epoch} is the current one"
            )
        raise UnknownLeaderEpoch(f"leader epoch {known_epoch} is not known here yet")

    # ---- appends

    async def append(self, batch: memoryview, *, all_in_sync: bool, guard: Guard | None = None) -> Appended:
        """Append a client's batch; `all_in_sync` is what acks=all asks for, `guard` what it was verified with
        if it begins a transaction."""
        marks = self.marks
        while True:
            role = self.role
            if not isinstance(role, Leading):
                raise self.refusal()
            if all_in_sync and self._followers is not None and role.is_under_min:
                raise self._not_enough(role)
            try:
                appended = await self.log.append_as_leader(batch, role.leader_epoch, guard=guard)
                break
            except FencedLeaderEpoch:
                continue  # the epoch changed while it waited for its turn; nothing was appended
        if not appended.is_duplicate:
            self.traffic.bytes_in += len(batch)
            self.traffic.messages_in += appended.last_offset - appended.first_offset + 1
        if self.marks is not marks:
            if all_in_sync:
                raise self.refusal()
            return appended
        # not to the end of the log: what others append meanwhile may still have to be synced (flush.messages)
        if self._followers is None and not marks.end_polls:
            self._committed(appended.last_offset + 1, appended.stored_bytes)  # one call less: the usual case
        else:
            self._held(appended.last_offset + 1, appended.stored_bytes)
        return appended

    async def append_own(self, data: bytearray, *, transaction_version: int = 0) -> Appended:
        """Append what this node itself has to write: records of a coordinator, or markers, which bear the
        transaction version that they were written under. They belong to the epoch in which they were made."""
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

    # ---- the high watermark

    def committed(self, offset: int) -> asyncio.Future[None]:
        """A future that is done when the high watermark reaches `offset`, and fails with the leadership."""
        if not isinstance(self.role, Leading):
            raise self.refusal()
        return self.marks.committed(offset)

    async def count_written(self) -> None:
        """Count everything in the log of a leader as held here. After an append that failed, and after a
        crash, the log may hold records that were written but not synced as flush.messages asks."""
        end_offset = self.log.end_offset
        await self.log.flush_messages_due(end_offset)
        if isinstance(self.role, Leading):
            self._held(end_offset, 0)

    def require_follower(self, node_id: int, known_epoch: int) -> None:
        """Refuse a node without a replica. One that knows the epoch may know a later image, and retries."""
        role = self.role
        if isinstance(role, Leading) and node_id in role.followers:
            return
        told = f"node {node_id} does not follow this node with a replica of {self.name}-{self.partition}"
        raise UnknownLeaderEpoch(told) if known_epoch >= 0 else NotLeaderOrFollower(told)

    def follower_reached(self, node_id: int, end_offset: int) -> None:
        """A follower asks for what comes at `end_offset`: it holds what is before."""
        role, followers = self.role, self._followers
        if isinstance(role, Leading) and followers is not None:
            followers.ends[node_id] = end_offset
            self._apply_rule(role)

    def _held(self, offset: int, new_bytes: int) -> None:
        """This node, the leader, holds what is before `offset`; so many bytes of it are new."""
        if self.marks.end_polls:
            self.marks.end_moved(new_bytes)
        if self._followers is None:
            self._committed(offset, new_bytes)
            return
        self._followers.appended(offset, new_bytes)
        role = self.role
        if isinstance(role, Leading):
            self._apply_rule(role)

    def _apply_rule(self, role: Leading) -> None:
        followers = self._followers
        assert followers is not None
        offset = high_watermark_of(role, followers.own_end, followers.ends)
        if offset > self.log.high_watermark:
            self._committed(offset, followers.committed_bytes(offset))

    def _committed(self, offset: int, new_bytes: int) -> None:
        """Every in-sync replica has what is before `offset`; so many bytes can be read since."""
        log = self.log
        if log.advance_high_watermark(offset) or new_bytes:
            self.marks.moved(log.high_watermark, new_bytes)
            if self.marks.stable_polls:
                self.marks.stable_moved(log.last_stable_offset)
