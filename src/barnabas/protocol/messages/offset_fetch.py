"""OffsetFetch: what one group committed up to version 7, several from 8 on; topics go by id from 10 on."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class OffsetFetchRequestTopic(Struct):
    name: String
    partition_indexes: list[Int32]


class OffsetFetchRequestTopics(Struct):
    name: String = field(8, 9)
    topic_id: Uuid = field(10)
    partition_indexes: list[Int32]


class OffsetFetchRequestGroup(Struct):
    group_id: String
    member_id: String | None = field(9, default=None)
    member_epoch: Int32 = field(9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None


class OffsetFetchRequest(Message, key=9, versions=(1, 10), flexible=6):
    group_id: String = field(1, 7)
    topics: list[OffsetFetchRequestTopic] | None = field(1, 7, nullable=2)
    groups: list[OffsetFetchRequestGroup] = field(8)
    require_stable: Bool = field(7, default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(5, default=-1)
    metadata: String | None
    error_code: Int16


class OffsetFetchResponseTopic(Struct):
    name: String
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1)
    metadata: String | None
    error_code: Int16


class OffsetFetchResponseTopics(Struct):
    name: String = field(8, 9)
    topic_id: Uuid = field(10)
    partitions: list[OffsetFetchResponsePartitions]


class OffsetFetchResponseGroup(Struct):
    group_id: String
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16


class OffsetFetchResponse(Message, key=9, versions=(1, 10), flexible=6):
    throttle_time_ms: Int32 = field(3)
    topics: list[OffsetFetchResponseTopic] = field(1, 7)
    error_code: Int16 = field(2, 7, default=0)
    groups: list[OffsetFetchResponseGroup] = field(8)
