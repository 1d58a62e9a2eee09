"""The records of `__consumer_offsets` and `__transaction_state`, as Kafka's coordinators write them.

A key begins with its type, a value with its version; a value that is null deletes what the key names. Records
of share and streams groups are not decoded; nor is, of a consumer group's member, what it brought along from
the classic protocol.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.core.errors import BarnabasError
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.protocol.codecs import decode
from barnabas.protocol.schema import (
    NO_UUID,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    field,
)
from barnabas.records.record import Record

_INT16 = struct.Struct(">h")


class NotDecoded(BarnabasError):
    """A record of a type or version that is not known here."""


# ---- offsets and classic groups --------------------------------------------------------------------------


class OffsetCommitKey(Message, key=1):
    group: String
    topic: String
    partition: Int32


class OffsetCommitValue(Message, key=1, versions=(0, 4), flexible=4):
    offset: Int64
    leader_epoch: Int32 = field(3, default=-1)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = field(1, 1, default=-1)
    topic_id: Uuid = field(4, tag=0, default=NO_UUID)


class GroupMetadataKey(Message, key=2):
    group: String


class ClassicMember(Struct):
    member_id: String
    group_instance_id: String | None = field(3, default=None)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = field(1, default=-1)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


class GroupMetadataValue(Message, key=2, versions=(0, 4), flexible=4):
    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = field(2, default=-1)
    members: list[ClassicMember]


# ---- groups of the consumer protocol ---------------------------------------------------------------------


class ConsumerGroupKey(Message):
    group_id: String


class ConsumerGroupMemberKey(Message):
    group_id: String
    member_id: String


class ConsumerGroupRegularExpressionKey(Message):
    group_id: String
    regular_expression: String


class ConsumerGroupMetadataValue(Message, flexible=0):
    epoch: Int32
    metadata_hash: Int64 = field(tag=0, default=0)


class ConsumerGroupMemberMetadataValue(Message, flexible=0):
    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32
    server_assignor: String | None


class ConsumerGroupTargetAssignmentMetadataValue(Message, flexible=0):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0)


class TargetPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupTargetAssignmentMemberValue(Message, flexible=0):
    topic_partitions: list[TargetPartitions]


class AssignedPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(tag=0, default=None)


class ConsumerGroupCurrentMemberAssignmentValue(Message, flexible=0):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[AssignedPartitions]
    partitions_pending_revocation: list[AssignedPartitions]


class ConsumerGroupRegularExpressionValue(Message, flexible=0):
    topics: list[String]
    version: Int64
    timestamp: Int64


# ---- transactions ----------------------------------------------------------------------------------------


class TransactionLogKey(Message, key=0):
    transactional_id: String


class TransactionPartitions(Struct):
    topic: String
    partition_ids: list[Int32]


class TransactionLogValue(Message, key=0, versions=(0, 1), flexible=1):
    producer_id: Int64
    previous_producer_id: Int64 = field(1, tag=0, default=-1)
    next_producer_id: Int64 = field(1, tag=1, default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = field(1, tag=3, default=-1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[TransactionPartitions] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field(1, tag=2, default=0)


# ---- which is which --------------------------------------------------------------------------------------

Kind = tuple[str, type[Message], type[Message]]
# the type in a key -> its name, key and value
_OF_TOPIC: dict[str, dict[int, Kind]] = {
    CONSUMER_OFFSETS: {
        0: ("OffsetCommit", OffsetCommitKey, OffsetCommitValue),
        1: ("OffsetCommit", OffsetCommitKey, OffsetCommitValue),
        2: ("GroupMetadata", GroupMetadataKey, GroupMetadataValue),
        3: ("ConsumerGroupMetadata", ConsumerGroupKey, ConsumerGroupMetadataValue),
        5: ("ConsumerGroupMemberMetadata", ConsumerGroupMemberKey, ConsumerGroupMemberMetadataValue),
        6: (
            "ConsumerGroupTargetAssignmentMetadata",
            ConsumerGroupKey,
            ConsumerGroupTargetAssignmentMetadataValue,
        ),
        7: (
            "ConsumerGroupTargetAssignmentMember",
            ConsumerGroupMemberKey,
            ConsumerGroupTargetAssignmentMemberValue,
        ),
        8: (
            "ConsumerGroupCurrentMemberAssignment",
            ConsumerGroupMemberKey,
            ConsumerGroupCurrentMemberAssignmentValue,
        ),
        16: (
            "ConsumerGroupRegularExpression",
            ConsumerGroupRegularExpressionKey,
            ConsumerGroupRegularExpressionValue,
        ),
    },
    TRANSACTION_STATE: {0: ("TransactionLog", TransactionLogKey, TransactionLogValue)},
}
TOPICS = tuple(_OF_TOPIC)


class Decoded(NamedTuple):
    """A coordinator's record; without a value it deletes what the key names."""

    type: str
    key: Message
    version: int
    value: Message | None


def decode_coordinator(topic: str, record: Record) -> Decoded:
    """What a record of one of these topics says; NotDecoded where its type or version is not known."""
    number, key = _prefixed(record.key)
    kind = _OF_TOPIC[topic].get(number)
    if kind is None:
        raise NotDecoded(f"records of type {number} in {topic} are not decoded")
    name, key_class, value_class = kind
    told = decode(key_class, 0, key)
    if record.value is None:
        return Decoded(name, told, 0, None)
    version, value = _prefixed(record.value)
    if not value_class.__versions__[0] <= version <= value_class.__versions__[1]:
        raise NotDecoded(f"{name} of version {version} is not decoded")
    return Decoded(name, told, version, decode(value_class, version, value))


def _prefixed(data: bytes | None) -> tuple[int, memoryview]:
    if data is None or len(data) < _INT16.size:
        raise NotDecoded("the record is shorter than its type or version")
    return _INT16.unpack_from(data)[0], memoryview(data)[_INT16.size :]
