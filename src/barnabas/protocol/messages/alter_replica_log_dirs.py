"""AlterReplicaLogDirs: in which of its log directories a broker shall keep partitions."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Message, String, Struct


class AlterReplicaLogDirTopic(Struct):
    name: String
    partitions: list[Int32]


class AlterReplicaLogDir(Struct):
    path: String
    topics: list[AlterReplicaLogDirTopic]


class AlterReplicaLogDirsRequest(Message, key=34, versions=(1, 2), flexible=2):
    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: String
    partitions: list[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirsResponse(Message, key=34, versions=(1, 2), flexible=2):
    throttle_time_ms: Int32
    results: list[AlterReplicaLogDirTopicResult]
