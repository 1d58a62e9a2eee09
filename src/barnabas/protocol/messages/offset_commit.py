"""OffsetCommit: how far a group has read; topics go by id from version 10 on."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Int64, Message, String, Struct, Uuid, field


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(6, default=-1)
    committed_metadata: String | None


class OffsetCommitRequestTopic(Struct):
    topic_id: Uuid = field(10)
    name: String = field(2, 9)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Message, key=8, versions=(2, 10), flexible=8):
    group_id: String
    generation_id_or_member_epoch: Int32 = field(default=-1)
    member_id: String
    group_instance_id: String | None = field(7, default=None)
    retention_time_ms: Int64 = field(2, 4, default=-1)
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16


class OffsetCommitResponseTopic(Struct):
    topic_id: Uuid = field(10)
    name: String = field(2, 9)
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Message, key=8, versions=(2, 10), flexible=8):
    throttle_time_ms: Int32 = field(3)
    topics: list[OffsetCommitResponseTopic]
