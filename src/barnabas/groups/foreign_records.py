"""Keys of records of groups that only Apache Kafka serves; their values are not decoded."""

from __future__ import annotations

from barnabas.coordination.records import Kind, Unread
from barnabas.protocol.schema import Message, String

# ---- written by 4.0 for groups of the consumer protocol --------------------------------------------------


class ConsumerGroupPartitionMetadataKey(Message, key=4):
    group_id: String


# ---- share groups ----------------------------------------------------------------------------------------


class ShareGroupMemberMetadataKey(Message, key=10):
    group_id: String
    member_id: String


class ShareGroupMetadataKey(Message, key=11):
    group_id: String


class ShareGroupTargetAssignmentMetadataKey(Message, key=12):
    group_id: String


class ShareGroupTargetAssignmentMemberKey(Message, key=13):
    group_id: String
    member_id: String


class ShareGroupCurrentMemberAssignmentKey(Message, key=14):
    group_id: String
    member_id: String


class ShareGroupStatePartitionMetadataKey(Message, key=15):
    group_id: String


# ---- streams groups --------------------------------------------------------------------------------------


class StreamsGroupMetadataKey(Message, key=17):
    group_id: String


class StreamsGroupMemberMetadataKey(Message, key=19):
    group_id: String
    member_id: String


class StreamsGroupTargetAssignmentMetadataKey(Message, key=20):
    group_id: String


class StreamsGroupTargetAssignmentMemberKey(Message, key=21):
    group_id: String
    member_id: String


class StreamsGroupCurrentMemberAssignmentKey(Message, key=22):
    group_id: String
    member_id: String


class StreamsGroupTopologyKey(Message, key=23):
    group_id: String


FOREIGN_KINDS: dict[int, Kind] = {
    key.__key__: Kind(key.__name__.removesuffix("Key"), key, Unread)
    for key in (
        ConsumerGroupPartitionMetadataKey,
        ShareGroupMemberMetadataKey,
        ShareGroupMetadataKey,
        ShareGroupTargetAssignmentMetadataKey,
        ShareGroupTargetAssignmentMemberKey,
        ShareGroupCurrentMemberAssignmentKey,
        ShareGroupStatePartitionMetadataKey,
        StreamsGroupMetadataKey,
        StreamsGroupMemberMetadataKey,
        StreamsGroupTargetAssignmentMetadataKey,
        StreamsGroupTargetAssignmentMemberKey,
        StreamsGroupCurrentMemberAssignmentKey,
        StreamsGroupTopologyKey,
    )
}
