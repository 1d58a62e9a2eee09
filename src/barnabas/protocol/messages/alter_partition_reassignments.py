"""AlterPartitionReassignments: begin, change and cancel moves of partitions."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int16, Int32, Message, String, Struct, field


class ReassignablePartition(Struct):
    partition_index: Int32
    replicas: list[Int32] | None = field(default=None)


class ReassignableTopic(Struct):
    name: String
    partitions: list[ReassignablePartition]


class AlterPartitionReassignmentsRequest(Message, key=45, versions=(0, 1), flexible=0):
    timeout_ms: Int32 = field(default=60000)
    allow_replication_factor_change: Bool = field(1, default=True)
    topics: list[ReassignableTopic]


class ReassignablePartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None


class ReassignableTopicResponse(Struct):
    name: String
    partitions: list[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(Message, key=45, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32
    allow_replication_factor_change: Bool = field(1, default=True)
    error_code: Int16
    error_message: String | None
    responses: list[ReassignableTopicResponse]
