"""The expiry of committed offsets, and of groups without any.

An offset that was committed with its own expiry expires then. Any other is kept for the broker's retention
time,

    since the group is empty                 if members have left it
    since it was committed                   if there never were any
    since it was committed                   if its members are consumers without this topic
    forever                                  otherwise

but not while a transaction is pending for the partition, and never in a group of another type, which belongs
to Kafka. A group that is empty then, and has no offsets left or never had any, is removed too.

At intervals all groups are checked, a slice at a time, so that other tasks run in between. For most groups
only their times are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.coordination.effects import NOTHING, Effects, Now, TopicPartition, Write
from barnabas.groups.classic_states import STABLE
from barnabas.groups.group import CONSUMER, CONSUMER_PROTOCOL, Group
from barnabas.groups.offset_commands import Shard
from barnabas.groups.offsets import NO_EXPIRY_MS, GroupOffsets, TopicOffsets, tombstones, unpack

COMMITS_A_TURN = 1000
GROUPS_A_TURN = 5000


class _Rule(NamedTuple):
    """The rule by which the offsets of a group expire."""

    now_ms: int
    last_ms: int  # offsets whose time is at or before this have expired
    since_ms: int | None  # a common start of that time; None: the commit's own time

    def may_expire(self, topic: TopicOffsets) -> bool:
        since_ms = topic.oldest_commit_ms if self.since_ms is None else self.since_ms
        return since_ms <= self.last_ms or topic.soonest_expire_ms <= self.now_ms

    def has_expired(self, packed: bytes) -> bool:
        commit = unpack(packed)
        if commit.expire_ms != NO_EXPIRY_MS:
            return commit.expire_ms <= self.now_ms
        return (commit.commit_ms if self.since_ms is None else self.since_ms) <= self.last_ms


def rule_of(group: Group, now_ms: int, retention_ms: int) -> _Rule | None:
    """The rule by which a group's offsets expire; None if they do not."""
    if group.is_empty:
        since_ms = None if group.protocol_type is None else group.state_since_ms
    elif group.type == CONSUMER or (
        group.protocol_type == CONSUMER_PROTOCOL and group.state == STABLE and group.knows_subscription
    ):
        since_ms = None
    else:
        return None
    return _Rule(now_ms, now_ms - retention_ms, since_ms)


def expired(offsets: GroupOffsets, group: Group, rule: _Rule) -> Iterator[TopicPartition]:
    """The partitions whose commits have expired."""
    for name, topic in offsets.by_topic.items():
        if not rule.may_expire(topic) or group.is_subscribed_to(name):
            continue
        topic.look_again()
        for partition, packed in topic.by_partition.items():
            at = TopicPartition(name, partition)
            if rule.has_expired(packed) and at not in offsets.pending:
                yield at


class OffsetExpiry:
    """The schedule of the checks, and the groups left in the present one."""

    def __init__(self) -> None:
        self._due_seconds: float | None = None
        self._left: list[str] = []

    def next_due_seconds(self) -> float | None:
        return self._due_seconds

    def begin(self, shard: Shard, now: Now) -> None:
        """The shard is loaded: the first check is an interval away."""
        self._due_seconds = now.seconds + shard.settings().offsets_check_interval_ms / 1000

    def tick(self, shard: Shard, now: Now) -> Effects:
        """Expire everything that is due, or a slice of it."""
        if self._due_seconds is None or now.seconds < self._due_seconds:
            return NOTHING
        if not self._left:
            self._left = list(shard.groups)[::-1]
        writes: list[Write] = []
        budget = COMMITS_A_TURN
        for _ in range(min(GROUPS_A_TURN, len(self._left))):
            group = shard.groups.get(self._left[-1])
            if group is not None and group.may_expire:
                budget -= self._expire(shard, group, now, budget, writes)
            if budget <= 0:
                break  # this group may have more
            self._left.pop()
        if not self._left:
            self.begin(shard, now)
        return Effects(writes) if writes else NOTHING

    def _expire(self, shard: Shard, group: Group, now: Now, budget: int, writes: list[Write]) -> int:
        """Expire one group's offsets, and the group with them; returns the number of records."""
        offsets = shard.offsets.by_group.get(group.id)
        ended: list[TopicPartition] = []
        if offsets is not None:
            rule = rule_of(group, now.wall_ms, shard.settings().offsets_retention_ms)
            if rule is None:
                return 0
            for at in expired(offsets, group, rule):
                ended.append(at)
                if len(ended) == budget:
                    break
            writes.extend(tombstones(group.id, ended))
        if group.is_empty and (offsets is None or _has_no_more(offsets, len(ended))):
            records = group.tombstones()
            if records:
                writes.append(Write(records))
            return len(ended) + len(records)
        return len(ended)


def _has_no_more(offsets: GroupOffsets, ended_count: int) -> bool:
    committed_count = sum(len(topic.by_partition) for topic in offsets.by_topic.values())
    return not offsets.pending and committed_count == ended_count
