"""DescribeQuorum: who leads the metadata quorum, who votes in it, and how far each node has its log.

Version 1 tells when a replica last fetched and when it was last caught up; version 2 names directories and
endpoints, and explains errors.
"""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Int64, Message, String, Struct, UInt16, Uuid, field


class AskedPartition(Struct):
    partition_index: Int32


class AskedTopic(Struct):
    topic_name: String
    partitions: list[AskedPartition]


class DescribeQuorumRequest(Message, key=55, versions=(0, 2), flexible=0):
    topics: list[AskedTopic]


class ReplicaState(Struct):
    replica_id: Int32
    replica_directory_id: Uuid = field(2)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field(1, default=-1)
    last_caught_up_timestamp: Int64 = field(1, default=-1)


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(2)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class TopicData(Struct):
    topic_name: String
    partitions: list[PartitionData]


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
    topics: list[TopicData]
    nodes: list[Node] = field(2)
