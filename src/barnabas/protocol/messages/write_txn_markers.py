"""WriteTxnMarkers: a coordinator has the ends of transactions written into partitions."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int8, Int16, Int32, Int64, Message, String, Struct, field


class WritableTxnMarkerTopic(Struct):
    name: String
    partition_indexes: list[Int32]


class WritableTxnMarker(Struct):
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = field(2, default=0)


class WriteTxnMarkersRequest(Message, key=27, versions=(1, 2), flexible=1):
    markers: list[WritableTxnMarker]


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16


class WritableTxnMarkerTopicResult(Struct):
    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(Struct):
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(Message, key=27, versions=(1, 2), flexible=1):
    markers: list[WritableTxnMarkerResult]
