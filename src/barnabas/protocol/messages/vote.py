"""Vote: a replica asks a voter of the metadata quorum for its vote; from node to node only.

Version 1 names directories, the voter that is asked and the leader's address (KIP-853); version 2 has the
pre-vote (KIP-996).
"""

from __future__ import annotations

from barnabas.protocol.messages.quorum_nodes import LeaderNode
from barnabas.protocol.schema import Bool, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class AskedPartition(Struct):
    partition_index: Int32
    replica_epoch: Int32
    replica_id: Int32
    replica_directory_id: Uuid = field(1)
    voter_directory_id: Uuid = field(1)
    last_offset_epoch: Int32
    last_offset: Int64
    pre_vote: Bool = field(2)


class AskedTopic(Struct):
    topic_name: String
    partitions: list[AskedPartition]


class VoteRequest(Message, key=52, versions=(0, 2), flexible=0):
    cluster_id: String | None = field(default=None)
    voter_id: Int32 = field(1, default=-1)
    topics: list[AskedTopic]


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    vote_granted: Bool


class TopicData(Struct):
    topic_name: String
    partitions: list[PartitionData]


class VoteResponse(Message, key=52, versions=(0, 2), flexible=0):
    error_code: Int16
    topics: list[TopicData]
    node_endpoints: list[LeaderNode] = field(1, tag=0)
