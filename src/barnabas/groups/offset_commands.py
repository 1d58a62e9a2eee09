"""Commands about committed offsets: commit, also within a transaction, fetch, delete.

The group decides whether a commit is allowed. If it does not exist, clients without a membership (generation
-1) may commit, which creates it. Topics are resolved: the caller has checked that they and their partitions
exist, by name and by id.

A commit is written in version 4 of its record, as in Apache Kafka 4.3. A commit with its own expiry, from
clients before version 5 of the request, is written in version 1, which has a field for it. Within
transactions the topic's id is not known and not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from barnabas.coordination.effects import Caller, Effects, Now, Producer, Reply, TopicPartition, Write
from barnabas.coordination.records import KeyedRecord
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.groups.errors import GroupNotFound, IllegalGeneration, NonEmptyGroup
from barnabas.groups.group import CONSUMER_PROTOCOL, SHARE, Group
from barnabas.groups.offsets import NO_EXPIRY_MS, Committed, GroupOffsets, OffsetStore, tombstones, unpack
from barnabas.groups.records import OffsetCommitKey, OffsetCommitValue
from barnabas.groups.settings import GroupSettings
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.protocol.schema import NO_UUID

NO_OFFSET = -1
_VERSION = 4
_VERSION_WITH_EXPIRY = 1
_LATEST_MS = 2**63 - 1
_OWN_RETENTION = -1  # the request leaves it to the broker
_FIRST_WITH_NOT_FOUND = 9

_TOO_LARGE = wire_error("OFFSET_METADATA_TOO_LARGE").code
_UNSTABLE = wire_error("UNSTABLE_OFFSET_COMMIT").code
_SUBSCRIBED = wire_error("GROUP_SUBSCRIBED_TO_TOPIC").code


class Shard(Protocol):
    """The part of a shard that these commands use."""

    @property
    def groups(self) -> Mapping[str, Group]: ...

    @property
    def offsets(self) -> OffsetStore: ...

    @property
    def settings(self) -> Callable[[], GroupSettings]: ...


# ---- commits ----------------------------------------------------------------------------------------------


def commit(shard: Shard, request: OffsetCommitRequest, caller: Caller, now: Now, reply: Reply) -> Effects:
    """Commit offsets of a group; topics have both name and id."""
    generation = request.generation_id_or_member_epoch
    group = shard.groups.get(request.group_id)
    if group is not None:
        group.check_commit(
            request.member_id, request.group_instance_id, generation, now, is_transactional=False
        )
    elif generation >= 0:
        raise _no_group(request.group_id, caller.api_version >= _FIRST_WITH_NOT_FOUND)
    expire_ms = _expire_ms(request.retention_time_ms, now)
    max_metadata = shard.settings().offset_metadata_max_bytes
    records: list[KeyedRecord] = []
    topics = []
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            error_code = _TOO_LARGE if _is_longer(one.committed_metadata, max_metadata) else 0
            if not error_code:
                key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=one.partition_index)
                records.append(_record(key, one, topic.topic_id, now.wall_ms, expire_ms))
            partitions.append(
                OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error_code)
            )
        topics.append(
            OffsetCommitResponseTopic(topic_id=topic.topic_id, name=topic.name, partitions=partitions)
        )
    response = OffsetCommitResponse(throttle_time_ms=0, topics=topics)
    return Effects((Write(records),) if records else (), ((reply, response),))


def commit_in_transaction(shard: Shard, request: TxnOffsetCommitRequest, now: Now, reply: Reply) -> Effects:
    """Commit offsets of a group within a transaction."""
    group = shard.groups.get(request.group_id)
    if group is not None:
        group.check_commit(
            request.member_id, request.group_instance_id, request.generation_id, now, is_transactional=True
        )
    elif request.generation_id >= 0:
        raise _no_group(request.group_id, False)
    max_metadata = shard.settings().offset_metadata_max_bytes
    records: list[KeyedRecord] = []
    topics = []
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            error_code = _TOO_LARGE if _is_longer(one.committed_metadata, max_metadata) else 0
            if not error_code:
                key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=one.partition_index)
                records.append(_record(key, one, NO_UUID, now.wall_ms, NO_EXPIRY_MS))
            partitions.append(
                TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error_code)
            )
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    response = TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)
    producer = Producer(request.producer_id, request.producer_epoch)
    return Effects((Write(records, producer),) if records else (), ((reply, response),))


def _expire_ms(retention_ms: int, now: Now) -> int:
    """The expiry of a commit, limited to the largest timestamp."""
    return NO_EXPIRY_MS if retention_ms == _OWN_RETENTION else min(now.wall_ms + retention_ms, _LATEST_MS)


def _no_group(group_id: str, is_told: bool) -> BarnabasError:
    if is_told:
        return GroupNotFound(f"Group {group_id} not found.")
    return IllegalGeneration(f"group {group_id} does not exist, so it has no generation")


def _is_longer(text: str | None, limit: int) -> bool:
    """Whether a text is longer than Java's limit, which counts UTF-16 units."""
    if text is None or 2 * len(text) <= limit:
        return False
    return len(text) + sum(character > "\uffff" for character in text) > limit


def _record(
    key: OffsetCommitKey,
    asked: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: bytes,
    now_ms: int,
    expire_ms: int,
) -> KeyedRecord:
    if expire_ms != NO_EXPIRY_MS:
        # fields that version 1 lacks are dropped, so that memory equals the log
        value = OffsetCommitValue(
            offset=asked.committed_offset,
            metadata=asked.committed_metadata or "",
            commit_timestamp=now_ms,
            expire_timestamp=expire_ms,
        )
        return KeyedRecord(key, value, _VERSION_WITH_EXPIRY)
    value = OffsetCommitValue(
        offset=asked.committed_offset,
        leader_epoch=asked.committed_leader_epoch,
        metadata=asked.committed_metadata or "",
        commit_timestamp=now_ms,
        topic_id=topic_id,
    )
    return KeyedRecord(key, value, _VERSION)


# ---- fetches ----------------------------------------------------------------------------------------------


def list_committed(shard: Shard, group_id: str, reply: Reply) -> Effects:
    """The request for all committed offsets of a group."""
    topics = [
        OffsetFetchRequestTopics(name=name, partition_indexes=partitions)
        for name, partitions in shard.offsets.topics(group_id).items()
    ]
    return Effects((), ((reply, OffsetFetchRequestGroup(group_id=group_id, topics=topics)),))


def fetch(shard: Shard, asked: OffsetFetchRequestGroup, require_stable: bool, reply: Reply) -> Effects:
    """The committed offsets of the requested partitions."""
    offsets = shard.offsets.by_group.get(asked.group_id) or GroupOffsets()
    topics = [
        OffsetFetchResponseTopics(
            name=one.name,
            topic_id=one.topic_id,
            partitions=_found(offsets, one.name, one.topic_id, one.partition_indexes, require_stable),
        )
        for one in asked.topics or ()
    ]
    answer = OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=0)
    return Effects((), ((reply, OffsetFetchResponse(throttle_time_ms=0, topics=[], groups=[answer])),))


def _found(
    offsets: GroupOffsets, name: str, topic_id: bytes, partitions: Sequence[int], require_stable: bool
) -> list[OffsetFetchResponsePartitions]:
    topic = offsets.by_topic.get(name)
    by_partition = {} if topic is None else topic.by_partition
    pending = offsets.pending if require_stable else {}
    answers = []
    for partition in partitions:
        packed = by_partition.get(partition)
        if pending and TopicPartition(name, partition) in pending:
            answers.append(nothing(partition, _UNSTABLE))
        elif packed is None or _is_of_another(found := unpack(packed), topic_id):
            answers.append(nothing(partition))
        else:
            answers.append(
                OffsetFetchResponsePartitions(
                    partition_index=partition,
                    committed_offset=found.offset,
                    committed_leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                    error_code=0,
                )
            )
    return answers


def _is_of_another(found: Committed, topic_id: bytes) -> bool:
    """Whether it was committed for an earlier topic of the same name."""
    return found.topic_id != NO_UUID and topic_id != NO_UUID and found.topic_id != topic_id


def nothing(partition: int, error_code: int = 0) -> OffsetFetchResponsePartitions:
    """The response for a partition without a committed offset, or with an error."""
    return OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=NO_OFFSET, metadata="", error_code=error_code
    )


# ---- deletion ---------------------------------------------------------------------------------------------


def delete(shard: Shard, request: OffsetDeleteRequest, reply: Reply) -> Effects:
    """Delete committed offsets of partitions to which the group does not subscribe."""
    group = shard.groups.get(request.group_id)
    if group is None:
        raise GroupNotFound(f"Group {request.group_id} not found.")
    if group.type == SHARE:
        raise GroupNotFound(f"Group {request.group_id} is not a consumer group.")
    if not group.is_empty and group.protocol_type != CONSUMER_PROTOCOL:
        raise NonEmptyGroup(f"The group {request.group_id} is not empty.")
    offsets = shard.offsets.by_group.get(request.group_id) or GroupOffsets()
    ended: dict[TopicPartition, None] = {}
    topics = []
    for topic in request.topics:
        is_read = group.is_subscribed_to(topic.name)
        partitions = []
        for one in topic.partitions:
            at = TopicPartition(topic.name, one.partition_index)
            if not is_read and (at in offsets.pending or offsets.has_committed(at)):
                ended[at] = None
            partitions.append(
                OffsetDeleteResponsePartition(
                    partition_index=one.partition_index, error_code=_SUBSCRIBED if is_read else 0
                )
            )
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    response = OffsetDeleteResponse(error_code=0, throttle_time_ms=0, topics=topics)
    return Effects(tombstones(request.group_id, ended), ((reply, response),))


def forget_topics(shard: Shard, deleted: Mapping[str, bytes]) -> Effects:
    """Delete the committed offsets of deleted topics, given by name and id, except those of newer topics."""
    writes: list[Write] = []
    for group_id, offsets in shard.offsets.by_group.items():
        ended: dict[TopicPartition, None] = {}
        for name, topic_id in deleted.items():
            topic = offsets.by_topic.get(name)
            for partition, packed in () if topic is None else topic.by_partition.items():
                if unpack(packed).topic_id in (NO_UUID, topic_id):
                    ended[TopicPartition(name, partition)] = None
        for at in offsets.pending:
            if at.topic in deleted:
                ended[at] = None
        writes.extend(tombstones(group_id, ended))
    return Effects(writes)
