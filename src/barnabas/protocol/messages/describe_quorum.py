"""DescribeQuorum: who leads, votes and follows in the metadata quorum, and how far each has come."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Int64, Message, String, Struct, UInt16, Uuid, field


class PartitionData(Struct):
    partition_index: Int32


class TopicData(Struct):
    topic_name: String
    partitions: list[PartitionData]


class DescribeQuorumRequest(Message, key=55, versions=(0, 2), flexible=0):
    topics: list[TopicData]


class ReplicaState(Struct):
    replica_id: Int32
    replica_directory_id: Uuid = field(2)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field(1, default=-1)
    last_caught_up_timestamp: Int64 = field(1, default=-1)


class PartitionDataResponse(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(2)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class TopicDataResponse(Struct):
    topic_name: String
    partitions: list[PartitionDataResponse]


class Listener(Struct):
    name: String
    host: String
    port: UInt16


class Node(Struct):
    node_id: Int32
    listeners: list[Listener]


class DescribeQuorumResponse(Message, key=55, versions=(0, 2), flexible=0):
    error_code: Int16
    error_message: String | None = field(2)
    topics: list[TopicDataResponse]
    nodes: list[Node] = field(2)
