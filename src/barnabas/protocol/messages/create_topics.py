"""CreateTopics."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int8, Int16, Int32, Message, String, Struct, Uuid, field


class CreatableReplicaAssignment(Struct):
    partition_index: Int32
    broker_ids: list[Int32]


class CreatableTopicConfig(Struct):
    name: String
    value: String | None


class CreatableTopic(Struct):
    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


class CreateTopicsRequest(Message, key=19, versions=(2, 7), flexible=5):
    topics: list[CreatableTopic]
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = field(default=False)


class CreatableTopicConfigs(Struct):
    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool


class CreatableTopicResult(Struct):
    name: String
    topic_id: Uuid = field(7)
    error_code: Int16
    error_message: String | None
    topic_config_error_code: Int16 = field(5, tag=0, default=0)
    num_partitions: Int32 = field(5, default=-1)
    replication_factor: Int16 = field(5, default=-1)
    configs: list[CreatableTopicConfigs] | None = field(5)


class CreateTopicsResponse(Message, key=19, versions=(2, 7), flexible=5):
    throttle_time_ms: Int32
    topics: list[CreatableTopicResult]
