"""AssignReplicasToDirs: a broker says in which of its log directories partitions are; node to node only."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Int64, Message, Struct, Uuid, field


class PartitionData(Struct):
    partition_index: Int32


class TopicData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class DirectoryData(Struct):
    id_: Uuid
    topics: list[TopicData]


class AssignReplicasToDirsRequest(Message, key=73, versions=(0, 0), flexible=0):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    directories: list[DirectoryData]


class PartitionAssigned(Struct):
    partition_index: Int32
    error_code: Int16


class TopicAssigned(Struct):
    topic_id: Uuid
    partitions: list[PartitionAssigned]


class DirectoryAssigned(Struct):
    id_: Uuid
    topics: list[TopicAssigned]


class AssignReplicasToDirsResponse(Message, key=73, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    directories: list[DirectoryAssigned]
