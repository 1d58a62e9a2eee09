"""OffsetForLeaderEpoch: where an epoch ended."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Int64, Message, String, Struct, field


class OffsetForLeaderPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = field(default=-1)
    leader_epoch: Int32


class OffsetForLeaderTopic(Struct):
    topic: String
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(Message, key=23, versions=(2, 4), flexible=4):
    replica_id: Int32 = field(3, default=-2)
    topics: list[OffsetForLeaderTopic]


class EpochEndOffset(Struct):
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: String
    partitions: list[EpochEndOffset]


class OffsetForLeaderEpochResponse(Message, key=23, versions=(2, 4), flexible=4):
    throttle_time_ms: Int32
    topics: list[OffsetForLeaderTopicResult]
