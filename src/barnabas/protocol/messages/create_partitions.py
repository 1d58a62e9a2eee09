"""CreatePartitions: more partitions for topics that are there."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int16, Int32, Message, String, Struct, field


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32]


class CreatePartitionsTopic(Struct):
    name: String
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


class CreatePartitionsRequest(Message, key=37, versions=(0, 3), flexible=2):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


class CreatePartitionsTopicResult(Struct):
    name: String
    error_code: Int16
    error_message: String | None = field(default=None)


class CreatePartitionsResponse(Message, key=37, versions=(0, 3), flexible=2):
    throttle_time_ms: Int32
    results: list[CreatePartitionsTopicResult]
