"""Produce: append batches to partitions.

Versions 0 to 2 carried formats that no longer exist; topics go by id from 13 on.
"""

from __future__ import annotations

from barnabas.protocol.messages.leaders import LeaderIdAndEpoch, NodeEndpoint
from barnabas.protocol.schema import Int16, Int32, Int64, Message, Records, String, Struct, Uuid, field


class PartitionProduceData(Struct):
    index: Int32
    records: Records | None


class TopicProduceData(Struct):
    topic_id: Uuid = field(13)
    name: String = field(3, 12)
    partition_data: list[PartitionProduceData]


class ProduceRequest(Message, key=0, versions=(3, 13), flexible=9):
    transactional_id: String | None = field(default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32
    batch_index_error_message: String | None = field(default=None)


class PartitionProduceResponse(Struct):
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = field(default=-1)
    log_start_offset: Int64 = field(5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(8)
    error_message: String | None = field(8, default=None)
    current_leader: LeaderIdAndEpoch | None = field(10, tag=0)


class TopicProduceResponse(Struct):
    topic_id: Uuid = field(13)
    name: String = field(3, 12)
    partition_responses: list[PartitionProduceResponse]


class ProduceResponse(Message, key=0, versions=(3, 13), flexible=9):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = field(default=0)
    node_endpoints: list[NodeEndpoint] = field(10, tag=0)
