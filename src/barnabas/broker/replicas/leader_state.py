"""The leader's side of a partition with other replicas: its followers, its ISR, and the committed offset.

The metadata holds the ISR; a leader asks the controller for another one (`partition_changes`) and acts on it
when it is published. Until then the high watermark goes by the larger of the two: a member that is to leave
still counts, a replica that is to join counts already. One change is pending at a time. It ends with metadata
of a later partition epoch, or when the controller has certainly refused it.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.replicas.followers import NEVER, UNKNOWN_EPOCH, UNKNOWN_OFFSET, Follower
from barnabas.broker.replicas.in_sync import committed_end, is_eligible, lagging, may_join
from barnabas.broker.replicas.partition_changes import Member, Outcome, PartitionChange
from barnabas.log.reading import ENDLESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.broker.replicas.leader_context import LeaderContext
    from barnabas.broker.replicas.roles import Leading
    from barnabas.log.partition import PartitionLog

logger = logging.getLogger("barnabas.replicas")

REFUSED_WAIT_S = 0.1  # before a change that was refused is asked for again
MAX_UNCOMMITTED = 4096  # appends whose bytes are counted one by one


class Place(NamedTuple):
    """Names the partition, in requests and in log messages."""

    topic_id: bytes
    partition: int
    topic: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class FollowerLag(NamedTuple):
    """How far a follower is behind its leader."""

    node_id: int
    records: int
    seconds: float  # since it was caught up
    is_in_sync: bool


class LeaderState:
    """One unbroken leadership. `moved` is called when a controller's answer may let the high watermark
    move."""

    __slots__ = (
        "_asked_at",
        "_context",
        "_floor",
        "_in_sync",
        "_may_ask_at",
        "_moved",
        "_place",
        "_uncommitted",
        "change",
        "followers",
        "own_end",
        "role",
    )

    def __init__(
        self,
        context: LeaderContext,
        place: Place,
        role: Leading,
        own_end: int,
        uncommitted_bytes: int,
        moved: Callable[[], None],
    ) -> None:
        self._context = context
        self._place = place
        self._moved = moved
        self.role = role
        self.own_end = own_end  # what this node has, synced where flush.messages requires it
        self.change: PartitionChange | None = None  # pending
        self._asked_at = self._may_ask_at = NEVER
        self._in_sync: tuple[int, ...] = role.isr  # the maximal ISR
        self._floor = UNKNOWN_OFFSET  # the smallest end of its other members
        self._uncommitted: deque[tuple[int, int]] = deque()
        if uncommitted_bytes:
            self._uncommitted.append((own_end, uncommitted_bytes))
        self._begin_followers(context.now())

    def _begin_followers(self, now: float) -> None:
        """Forget the followers' positions. Members of the ISR have the whole lag time to fetch."""
        isr, others = self.role.isr, self.role.followers
        self.followers = {each: Follower(each, now if each in isr else NEVER, now) for each in others}

    def take_role(self, role: Leading, log_end: int) -> None:
        """Apply later metadata, of the same leader epoch or a later one."""
        before, self.role = self.role, role
        now = self._context.now()
        if role.leader_epoch > before.leader_epoch + 1:
            # Every change of leaders is an epoch: another node may have led meanwhile, and followers may have
            # truncated to its log. Their earlier positions do not count any more.
            self._begin_followers(now)
        for each in set(self.followers) - set(role.followers):
            del self.followers[each]
        for each in role.followers:
            if each not in self.followers:
                self.followers[each] = Follower(each, NEVER, now)
        if role.leader_epoch == before.leader_epoch + 1:
            for follower in self.followers.values():
                follower.begin_epoch(log_end, now, is_in_sync=follower.node_id in role.isr)
        if (role.leader_epoch, role.partition_epoch) != (before.leader_epoch, before.partition_epoch):
            self._count(before.isr, role.isr)
            self._drop_change()
        self._in_sync = self._maximal_isr()

    def end(self) -> None:
        """This node does not lead the partition any more."""
        self._drop_change()

    def _count(self, before: tuple[int, ...], isr: tuple[int, ...]) -> None:
        """Count an ISR change that this leader asked for."""
        change, counts = self.change, self._context.isr_changes
        if change is not None:
            counts.expands += any(each in isr and each not in before for each in change.joining)
            counts.shrinks += any(each not in isr and each in before for each in change.leaving)

    def _drop_change(self) -> None:
        if self.change is not None:
            self.change.is_over = True
            self.change = None

    def _maximal_isr(self) -> tuple[int, ...]:
        return self.role.isr if self.change is None else (*self.role.isr, *self.change.joining)

    @property
    def is_under_min(self) -> bool:
        """Whether the maximal ISR is smaller than min.insync.replicas."""
        return len(self._in_sync) < self.role.min_in_sync

    # ---- appends, and what is committed

    def appended(self, end_offset: int, size_bytes: int) -> None:
        """The leader has everything before `end_offset`; `size_bytes` of it are new."""
        if end_offset > self.own_end:
            self.own_end = end_offset
        if size_bytes:
            uncommitted = self._uncommitted
            if len(uncommitted) >= MAX_UNCOMMITTED:
                size_bytes += uncommitted.pop()[1]
            uncommitted.append((end_offset, size_bytes))

    def committed_bytes(self, high_watermark: int) -> int:
        """How many bytes were committed since the last call."""
        count, uncommitted = 0, self._uncommitted
        while uncommitted and uncommitted[0][0] <= high_watermark:
            count += uncommitted.popleft()[1]
        return count

    def may_commit_more(self, high_watermark: int) -> bool:
        """Whether an append alone may move the high watermark. It nearly always waits for a member of the
        ISR."""
        return self._floor > high_watermark

    def committed_end(self, log: PartitionLog) -> int:
        """The offset up to which everything is committed; UNKNOWN_OFFSET where the high watermark does not
        move."""
        context, leader_end, now = self._context, log.end_offset, self._context.now()
        followers, in_sync = self.followers.values(), self._in_sync
        self._floor = min((each.end_offset for each in followers if each.node_id in in_sync), default=ENDLESS)

        def is_waited_for(follower: Follower) -> bool:
            return follower.is_caught_up(leader_end, now, context.lag_s) and is_eligible(
                follower, context.broker(follower.node_id)
            )

        # records that this node wrote as a follower, before it became the leader, count as well
        own_end = max(self.own_end, log.held_end)
        return committed_end(self.role, in_sync, followers, own_end, is_waited_for)

    def low_watermark(self, log: PartitionLog) -> int:
        """The smallest log start offset of the replicas whose brokers are not fenced."""
        lowest = log.start_offset
        for each in self.followers.values():
            broker = self._context.broker(each.node_id)
            if broker is not None and not broker.fenced and each.start_offset < lowest:
                lowest = each.start_offset
        return lowest

    def lags(self, log: PartitionLog) -> Iterator[FollowerLag]:
        """How far the followers are behind. A member of the ISR that has not fetched yet has what is
        committed."""
        leader_end, now = log.end_offset, self._context.now()
        for each in self.followers.values():
            is_in_sync = each.node_id in self.role.isr
            held = max(each.end_offset, log.high_watermark if is_in_sync else log.start_offset)
            records = max(0, leader_end - held)
            seconds = each.behind_s(leader_end, now) if records else 0.0
            yield FollowerLag(each.node_id, records, seconds, is_in_sync)

    # ---- fetches of followers

    def fetched(
        self, node_id: int, end_offset: int, start_offset: int, broker_epoch: int, log: PartitionLog
    ) -> bool:
        """A follower has these offsets; returns whether that may move the high watermark."""
        follower = self.followers.get(node_id)
        if follower is None:
            return False
        has_moved = end_offset != follower.end_offset
        follower.fetched(end_offset, start_offset, log.end_offset, self._context.now(), broker_epoch)
        if node_id not in self.role.isr and self.change is None:
            self._expand(follower, log)
        return has_moved

    def is_settled(self, node_id: int, end_offset: int) -> bool:
        """Whether a follower is in the ISR, no change is pending, and it has everything before
        `end_offset`."""
        follower = self.followers.get(node_id)
        return (
            follower is not None
            and follower.end_offset == end_offset
            and node_id in self.role.isr
            and self.change is None
        )

    def was_caught_up(self, node_id: int, at: float) -> None:
        """A follower at rest sent a request at that time, and was caught up."""
        follower = self.followers.get(node_id)
        if follower is not None:
            follower.fetched_at = max(follower.fetched_at, at)
            follower.caught_up_at = max(follower.caught_up_at, at)

    def _expand(self, follower: Follower, log: PartitionLog) -> None:
        context, role = self._context, self.role
        now = context.now()
        if now < self._may_ask_at or not may_join(
            role,
            follower,
            context.broker(follower.node_id),
            high_watermark=log.high_watermark,
            epoch_start=log.start_of_epoch(role.leader_epoch),
            leader_end=log.end_offset,
            now=now,
            lag_s=context.lag_s,
        ):
            return
        isr = (*role.isr, follower.node_id)
        logger.info("%s: expanding the ISR from %s to %s", self._place, role.isr, isr)
        self._ask_for(isr, joining=(follower.node_id,))

    def check_lag(self, log: PartitionLog) -> None:
        """Ask for members to leave the ISR that lag behind for too long."""
        context, role, change = self._context, self.role, self.change
        now = context.now()
        if change is not None:
            if now - self._asked_at > context.lag_s:
                # the metadata with the change has not arrived: asking again does no harm
                self._asked_at = now
                context.submit(change)
            return
        gone = lagging(role, self.followers, log.end_offset, now, context.lag_s)
        if not gone or now < self._may_ask_at:
            return
        isr = tuple(each for each in role.isr if each not in gone)
        logger.info(
            "%s: shrinking the ISR from %s to %s: high watermark %d, log end %d, followers end at %s",
            self._place,
            role.isr,
            isr,
            log.high_watermark,
            log.end_offset,
            {each: self.followers[each].end_offset for each in gone},
        )
        self._ask_for(isr, leaving=gone)

    # ---- changes of the ISR

    def tell_recovered(self) -> None:
        """After an unclean election, report the partition as recovered: this leader's log is the truth
        now."""
        if self.role.is_recovering and self.change is None:
            self._ask_for(self.role.isr)

    def _ask_for(
        self, isr: tuple[int, ...], *, joining: tuple[int, ...] = (), leaving: tuple[int, ...] = ()
    ) -> None:
        role, context = self.role, self._context
        self.change = PartitionChange(
            self._place.topic_id,
            self._place.partition,
            role.leader_epoch,
            role.partition_epoch,
            tuple(Member(each, self._epoch_of(each)) for each in isr),
            joining=joining,
            leaving=leaving,
            answered=self._answered,
        )
        self._asked_at = context.now()
        self._in_sync = self._maximal_isr()
        context.submit(self.change)

    def _epoch_of(self, node_id: int) -> int:
        """The broker epoch of an ISR member in a request. It is unknown for a member that has not fetched
        yet: if its broker was restarted since, the controller has removed it, and the partition epoch has
        changed."""
        if node_id == self._context.node_id:
            return self._context.broker_epoch()
        follower = self.followers.get(node_id)
        known = None if follower is None else follower.broker_epoch
        return UNKNOWN_EPOCH if known is None else known

    def _answered(self, change: PartitionChange, outcome: Outcome, partition_epoch: int) -> None:
        if change is not self.change:
            return
        if outcome is not Outcome.TAKEN:
            self._context.isr_changes.failed += 1
        if outcome is Outcome.REFUSED:
            self._may_ask_at = self._context.now() + REFUSED_WAIT_S
        elif outcome is not Outcome.TAKEN or partition_epoch > self.role.partition_epoch:
            return  # the metadata is on its way here
        self._drop_change()
        self._in_sync = self._maximal_isr()
        self._moved()
