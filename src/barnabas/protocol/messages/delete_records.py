"""DeleteRecords: move the start of partitions up to an offset."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Int64, Message, String, Struct


class DeleteRecordsPartition(Struct):
    partition_index: Int32
    offset: Int64


class DeleteRecordsTopic(Struct):
    name: String
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsRequest(Message, key=21, versions=(0, 2), flexible=2):
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


class DeleteRecordsTopicResult(Struct):
    name: String
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(Message, key=21, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32
    topics: list[DeleteRecordsTopicResult]
