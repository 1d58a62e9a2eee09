"""EndQuorumEpoch: the leader of the metadata quorum tells a voter that it resigned; from node to node only.

Version 0 names the voters that should follow it by their ids, version 1 by id and directory (KIP-853).
"""

from __future__ import annotations

from barnabas.protocol.messages.quorum_nodes import LeaderNode, Listener
from barnabas.protocol.schema import Int16, Int32, Message, String, Struct, Uuid, field


class ReplicaInfo(Struct):
    candidate_id: Int32
    candidate_directory_id: Uuid


class ToldPartition(Struct):
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    preferred_successors: list[Int32] = field(0, 0)
    preferred_candidates: list[ReplicaInfo] = field(1)


class ToldTopic(Struct):
    topic_name: String
    partitions: list[ToldPartition]


class EndQuorumEpochRequest(Message, key=54, versions=(0, 1), flexible=1):
    cluster_id: String | None = field(default=None)
    topics: list[ToldTopic]
    leader_endpoints: list[Listener] = field(1)


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32


class TopicData(Struct):
    topic_name: String
    partitions: list[PartitionData]


class EndQuorumEpochResponse(Message, key=54, versions=(0, 1), flexible=1):
    error_code: Int16
    topics: list[TopicData]
    node_endpoints: list[LeaderNode] = field(1, tag=0)
