"""FetchSnapshot: a replica of the metadata log loads the leader's snapshot piece by piece.

Version 1 names the replica's directory and the leader's address (KIP-853). A `current_leader` that is absent
is node 0 in epoch 0 to Apache Kafka.
"""

from __future__ import annotations

from barnabas.protocol.messages.quorum_nodes import LeaderNode
from barnabas.protocol.schema import Int16, Int32, Int64, Message, Records, String, Struct, Uuid, field


class SnapshotId(Struct):
    end_offset: Int64
    epoch: Int32


class AskedPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32
    snapshot_id: SnapshotId
    position: Int64
    replica_directory_id: Uuid = field(1, tag=0)


class AskedTopic(Struct):
    name: String
    partitions: list[AskedPartition]


class FetchSnapshotRequest(Message, key=59, versions=(0, 1), flexible=0):
    cluster_id: String | None = field(tag=0, default=None)
    replica_id: Int32 = field(default=-1)
    max_bytes: Int32 = field(default=2147483647)
    topics: list[AskedTopic]


class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


class PartitionSnapshot(Struct):
    index: Int32
    error_code: Int16
    snapshot_id: SnapshotId
    current_leader: LeaderIdAndEpoch | None = field(tag=0)
    size: Int64
    position: Int64
    unaligned_records: Records


class TopicSnapshot(Struct):
    name: String
    partitions: list[PartitionSnapshot]


class FetchSnapshotResponse(Message, key=59, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    topics: list[TopicSnapshot]
    node_endpoints: list[LeaderNode] = field(1, tag=0)
