"""ListOffsets: offsets by time, and those with a name (earliest, latest, of the largest timestamp ...)."""

from __future__ import annotations

from barnabas.protocol.schema import Int8, Int16, Int32, Int64, Message, String, Struct, field


class ListOffsetsPartition(Struct):
    partition_index: Int32
    current_leader_epoch: Int32 = field(4, default=-1)
    timestamp: Int64


class ListOffsetsTopic(Struct):
    name: String
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(Message, key=2, versions=(1, 11), flexible=6):
    replica_id: Int32
    isolation_level: Int8 = field(2)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field(10)


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = field(default=-1)
    offset: Int64 = field(default=-1)
    leader_epoch: Int32 = field(4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: String
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Message, key=2, versions=(1, 11), flexible=6):
    throttle_time_ms: Int32 = field(2)
    topics: list[ListOffsetsTopicResponse]
