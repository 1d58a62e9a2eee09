"""Fetch: read batches of partitions, waiting for them if need be.

Fetch sessions from 7, truncation by epoch from 12, topics by id from 13 on.
"""

from __future__ import annotations

from barnabas.protocol.messages.leaders import LeaderIdAndEpoch, NodeEndpoint
from barnabas.protocol.schema import Int8, Int16, Int32, Int64, Message, Records, String, Struct, Uuid, field


class ReplicaState(Struct):
    replica_id: Int32 = field(default=-1)
    replica_epoch: Int64 = field(default=-1)


class FetchPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = field(9, default=-1)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = field(12, default=-1)
    log_start_offset: Int64 = field(5, default=-1)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = field(17, tag=0)
    high_watermark: Int64 = field(18, tag=1, default=9223372036854775807)


class FetchTopic(Struct):
    topic_id: Uuid = field(13)
    topic: String = field(4, 12)
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic_id: Uuid = field(13)
    topic: String = field(7, 12)
    partitions: list[Int32]


class FetchRequest(Message, key=1, versions=(4, 18), flexible=12):
    cluster_id: String | None = field(12, tag=0, default=None)
    replica_state: ReplicaState | None = field(15, tag=1)
    replica_id: Int32 = field(4, 14, default=-1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=2147483647)
    isolation_level: Int8 = field(default=0)
    session_id: Int32 = field(7, default=0)
    session_epoch: Int32 = field(7, default=-1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field(7)
    rack_id: String = field(11, default="")


class EpochEndOffset(Struct):
    epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


class SnapshotId(Struct):
    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


class AbortedTransaction(Struct):
    producer_id: Int64
    first_offset: Int64


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = field(default=-1)
    log_start_offset: Int64 = field(5, default=-1)
    diverging_epoch: EpochEndOffset | None = field(12, tag=0)
    current_leader: LeaderIdAndEpoch | None = field(12, tag=1)
    snapshot_id: SnapshotId | None = field(12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None
    preferred_read_replica: Int32 = field(11, default=-1)
    records: Records | None


class FetchableTopicResponse(Struct):
    topic_id: Uuid = field(13)
    topic: String = field(4, 12)
    partitions: list[PartitionData]


class FetchResponse(Message, key=1, versions=(4, 18), flexible=12):
    throttle_time_ms: Int32
    error_code: Int16 = field(7)
    session_id: Int32 = field(7, default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field(16, tag=0)
