"""DescribeTopicPartitions: topics and their partitions, in portions."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int16, Int32, Message, String, Struct, Uuid, field


class TopicRequest(Struct):
    name: String


class Cursor(Struct):
    topic_name: String
    partition_index: Int32


class DescribeTopicPartitionsRequest(Message, key=75, versions=(0, 0), flexible=0):
    topics: list[TopicRequest]
    response_partition_limit: Int32 = field(default=2000)
    cursor: Cursor | None = field(default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = field(default=None)
    last_known_elr: list[Int32] | None = field(default=None)
    offline_replicas: list[Int32]


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16
    name: String | None
    topic_id: Uuid
    is_internal: Bool = field(default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = field(default=-2147483648)


class DescribeTopicPartitionsResponse(Message, key=75, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = field(default=None)
