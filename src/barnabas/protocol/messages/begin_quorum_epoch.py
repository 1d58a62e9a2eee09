"""BeginQuorumEpoch: the leader of the metadata quorum tells a voter that it leads; from node to node only.

Version 1 names the voter that is told and the leader's listeners (KIP-853).
"""

from __future__ import annotations

from barnabas.protocol.messages.quorum_nodes import LeaderNode, Listener
from barnabas.protocol.schema import Int16, Int32, Message, String, Struct, Uuid, field


class ToldPartition(Struct):
    partition_index: Int32
    voter_directory_id: Uuid = field(1)
    leader_id: Int32
    leader_epoch: Int32


class ToldTopic(Struct):
    topic_name: String
    partitions: list[ToldPartition]


class BeginQuorumEpochRequest(Message, key=53, versions=(0, 1), flexible=1):
    cluster_id: String | None = field(default=None)
    voter_id: Int32 = field(1, default=-1)
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


class BeginQuorumEpochResponse(Message, key=53, versions=(0, 1), flexible=1):
    error_code: Int16
    topics: list[TopicData]
    node_endpoints: list[LeaderNode] = field(1, tag=0)
