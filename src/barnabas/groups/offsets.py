"""The committed offsets of groups, by topic and partition.

    committed   in force; a plain commit is in force at once
    pending     committed within an open transaction: in force if that commits, dropped if it aborts

Of several commits of a partition the one whose record is last in the log wins, not the one whose transaction
ends last: compaction keeps only the last record, and a log must mean the same before and after. So a commit
in force supersedes every pending one before it. A superseded one still shows that a transaction is open. A
tombstone ends everything before it, pending or not.

The order of calls to `replay` is that of the log. A commit is stored as packed bytes, 80 and its text: there
may be hundreds of thousands, and the garbage collector has nothing to traverse.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.coordination.effects import Producer, TopicPartition, Write
from barnabas.coordination.records import KeyedRecord
from barnabas.groups.records import OffsetCommitKey, OffsetCommitValue

NO_EXPIRY_MS = -1
_NEVER_MS = 2**63 - 1
_PACKED = struct.Struct(">qiqq16s")
_TIMES = struct.Struct(">12xqq")  # the times in these bytes
_WRITE_BYTES = 256 * 1024  # of tombstones, which may be split into several writes
_RECORD_BYTES = 64  # of one tombstone, without its names
_UTF8_BYTES = 4  # of a character, at most


class Committed(NamedTuple):
    """The committed offset of a partition, with its metadata."""

    offset: int
    leader_epoch: int
    commit_ms: int
    expire_ms: int  # as requested by the commit; NO_EXPIRY_MS: by the settings
    topic_id: bytes
    metadata: str


def pack(value: OffsetCommitValue) -> bytes:
    """A commit as packed bytes."""
    fixed = _PACKED.pack(
        value.offset, value.leader_epoch, value.commit_timestamp, value.expire_timestamp, value.topic_id
    )
    return fixed + value.metadata.encode("utf-8", "surrogatepass") if value.metadata else fixed


def unpack(packed: bytes) -> Committed:
    """The commit in packed bytes."""
    offset, leader_epoch, commit_ms, expire_ms, topic_id = _PACKED.unpack_from(packed)
    metadata = packed[_PACKED.size :].decode("utf-8", "surrogatepass")
    return Committed(offset, leader_epoch, commit_ms, expire_ms, topic_id, metadata)


def tombstones(group_id: str, partitions: Iterable[TopicPartition]) -> list[Write]:
    """Writes that delete a group's offsets of these partitions; each fits into a batch."""
    writes: list[Write] = []
    records: list[KeyedRecord] = []
    size = 0
    for topic, partition in partitions:
        records.append(KeyedRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None))
        size += _RECORD_BYTES + _UTF8_BYTES * (len(group_id) + len(topic))
        if size >= _WRITE_BYTES:
            writes.append(Write(records))
            records, size = [], 0
    if records:
        writes.append(Write(records))
    return writes


class TopicOffsets:
    """A group's offsets of one topic, with bounds of their times."""

    __slots__ = ("by_partition", "oldest_commit_ms", "soonest_expire_ms")

    def __init__(self) -> None:
        self.by_partition: dict[int, bytes] = {}
        self.oldest_commit_ms = _NEVER_MS  # at most the earliest of the present commits
        self.soonest_expire_ms = _NEVER_MS

    def put(self, partition: int, packed: bytes) -> None:
        self.by_partition[partition] = packed
        self._note(packed)

    def look_again(self) -> None:
        """Recompute the bounds of the times: they may be those of replaced commits."""
        self.oldest_commit_ms = self.soonest_expire_ms = _NEVER_MS
        for packed in self.by_partition.values():
            self._note(packed)

    def _note(self, packed: bytes) -> None:
        commit_ms, expire_ms = _TIMES.unpack_from(packed)
        if commit_ms < self.oldest_commit_ms:
            self.oldest_commit_ms = commit_ms
        if expire_ms != NO_EXPIRY_MS and expire_ms < self.soonest_expire_ms:
            self.soonest_expire_ms = expire_ms


class Pending(NamedTuple):
    """A commit in an open transaction: its order in the log, and its bytes unless superseded."""

    order: int
    packed: bytes | None


class GroupOffsets:
    """The committed offsets of one group."""

    __slots__ = ("by_topic", "pending")

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicOffsets] = {}
        self.pending: dict[TopicPartition, dict[int, Pending]] = {}  # by producer id

    def partitions(self) -> Iterator[TopicPartition]:
        """Every partition with a commit, pending or not."""
        for topic, offsets in self.by_topic.items():
            for partition in offsets.by_partition:
                yield TopicPartition(topic, partition)
        for at in self.pending:
            if not self.has_committed(at):
                yield at

    def has_committed(self, at: TopicPartition) -> bool:
        offsets = self.by_topic.get(at.topic)
        return offsets is not None and at.partition in offsets.by_partition

    def put(self, topic: str, partition: int, packed: bytes, order: int) -> None:
        """Store a commit in force, whose record has that order."""
        offsets = self.by_topic.get(topic)
        if offsets is None:
            offsets = self.by_topic[topic] = TopicOffsets()
        offsets.put(partition, packed)
        if self.pending and (waiting := self.pending.get(TopicPartition(topic, partition))) is not None:
            for producer_id, pending in waiting.items():
                if pending.order < order:
                    waiting[producer_id] = Pending(pending.order, None)

    def remove(self, at: TopicPartition) -> None:
        offsets = self.by_topic.get(at.topic)
        if offsets is not None:
            offsets.by_partition.pop(at.partition, None)
            if not offsets.by_partition:
                del self.by_topic[at.topic]


class OffsetStore:
    """The commits of all groups of a shard."""

    def __init__(self) -> None:
        self.by_group: dict[str, GroupOffsets] = {}
        # the partitions with commits in each open transaction
        self._open: dict[int, dict[tuple[str, TopicPartition], None]] = {}
        self._order = 0

    # ---- queries

    def committed(self, group_id: str, topic: str, partition: int) -> Committed | None:
        """The committed offset of a partition."""
        group = self.by_group.get(group_id)
        offsets = None if group is None else group.by_topic.get(topic)
        packed = None if offsets is None else offsets.by_partition.get(partition)
        return None if packed is None else unpack(packed)

    def topics(self, group_id: str) -> dict[str, list[int]]:
        """The partitions with committed offsets of a group."""
        group = self.by_group.get(group_id)
        if group is None:
            return {}
        return {topic: list(offsets.by_partition) for topic, offsets in group.by_topic.items()}

    def has_any(self, group_id: str) -> bool:
        """Whether a group has commits, pending or not."""
        return group_id in self.by_group

    # ---- replay

    def replay(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer: Producer | None
    ) -> None:
        """Apply a record of the log: a commit, one within a transaction, or a tombstone."""
        if value is None:
            self._remove(key.group, TopicPartition(key.topic, key.partition))
            return
        group = self.by_group.get(key.group)
        if group is None:
            group = self.by_group[key.group] = GroupOffsets()
        self._order += 1
        if producer is None:
            group.put(key.topic, key.partition, pack(value), self._order)
        else:
            at = TopicPartition(key.topic, key.partition)
            group.pending.setdefault(at, {})[producer.id] = Pending(self._order, pack(value))
            self._open.setdefault(producer.id, {})[key.group, at] = None

    def _remove(self, group_id: str, at: TopicPartition) -> None:
        group = self.by_group.get(group_id)
        if group is None:
            return
        group.remove(at)
        for producer_id in group.pending.pop(at, ()):
            touched = self._open[producer_id]
            del touched[group_id, at]
            if not touched:
                del self._open[producer_id]
        self._tidy(group_id, group)

    def replay_end(self, producer: Producer, is_commit: bool) -> None:
        """A transaction has ended: its commits come into force, or are dropped."""
        for group_id, at in self._open.pop(producer.id, {}):
            group = self.by_group[group_id]
            waiting = group.pending[at]
            ended = waiting.pop(producer.id)
            if not waiting:
                del group.pending[at]
            if is_commit and ended.packed is not None:
                group.put(*at, ended.packed, ended.order)
            self._tidy(group_id, group)

    def _tidy(self, group_id: str, group: GroupOffsets) -> None:
        if not group.by_topic and not group.pending:
            del self.by_group[group_id]
