"""Metadata: brokers, topics and the leaders of their partitions.

In version 0 an empty list asks for all topics, later null does. Topics have ids from 10 on.
"""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int16, Int32, Message, String, Struct, Uuid, field


class MetadataRequestTopic(Struct):
    topic_id: Uuid = field(10)
    name: String | None = field(nullable=10)


class MetadataRequest(Message, key=3, versions=(0, 13), flexible=9):
    topics: list[MetadataRequestTopic] | None = field(nullable=1)
    allow_auto_topic_creation: Bool = field(4, default=True)
    include_cluster_authorized_operations: Bool = field(8, 10)
    include_topic_authorized_operations: Bool = field(8)


class MetadataResponseBroker(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(1, default=None)


class MetadataResponsePartition(Struct):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(7, default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field(5)


class MetadataResponseTopic(Struct):
    error_code: Int16
    name: String | None = field(nullable=12)
    topic_id: Uuid = field(10)
    is_internal: Bool = field(1, default=False)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field(8, default=-2147483648)


class MetadataResponse(Message, key=3, versions=(0, 13), flexible=9):
    throttle_time_ms: Int32 = field(3)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = field(2, default=None)
    controller_id: Int32 = field(1, default=-1)
    topics: list[MetadataResponseTopic]
    error_code: Int16 = field(13)
    cluster_authorized_operations: Int32 = field(8, 10, default=-2147483648)
