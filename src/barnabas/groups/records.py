"""The records of `__consumer_offsets`, as Kafka's group coordinator writes them.

Of share and streams groups only the keys are declared (`foreign_records`). The data that a member of a
consumer group keeps from the classic protocol is not declared.
"""

from __future__ import annotations

from barnabas.coordination.records import Kind
from barnabas.groups.foreign_records import FOREIGN_KINDS
from barnabas.protocol.schema import (
    NO_UUID,
    Bytes,
    Int8,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    field,
)

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


class ConsumerGroupMetadataKey(Message, key=3):
    group_id: String


class ConsumerGroupMemberMetadataKey(Message, key=5):
    group_id: String
    member_id: String


class ConsumerGroupTargetAssignmentMetadataKey(Message, key=6):
    group_id: String


class ConsumerGroupTargetAssignmentMemberKey(Message, key=7):
    group_id: String
    member_id: String


class ConsumerGroupCurrentMemberAssignmentKey(Message, key=8):
    group_id: String
    member_id: String


class ConsumerGroupRegularExpressionKey(Message, key=16):
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


# ---- types by key -----------------------------------------------------------------------------------------

_OFFSET_COMMIT = Kind("OffsetCommit", OffsetCommitKey, OffsetCommitValue)

KINDS: dict[int, Kind] = {
    0: _OFFSET_COMMIT,
    1: _OFFSET_COMMIT,
    2: Kind("GroupMetadata", GroupMetadataKey, GroupMetadataValue),
    3: Kind("ConsumerGroupMetadata", ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    5: Kind("ConsumerGroupMemberMetadata", ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: Kind(
        "ConsumerGroupTargetAssignmentMetadata",
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: Kind(
        "ConsumerGroupTargetAssignmentMember",
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: Kind(
        "ConsumerGroupCurrentMemberAssignment",
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupCurrentMemberAssignmentValue,
    ),
    16: Kind(
        "ConsumerGroupRegularExpression",
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupRegularExpressionValue,
    ),
    **FOREIGN_KINDS,
}
