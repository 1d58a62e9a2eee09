"""AddPartitionsToTxn: one transaction of a client up to version 3; from 4 on brokers ask about several."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int16, Int32, Int64, Message, String, Struct, field


class AddPartitionsToTxnTopic(Struct):
    name: String
    partitions: list[Int32]


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = field(default=False)
    topics: list[AddPartitionsToTxnTopic]


class AddPartitionsToTxnRequest(Message, key=24, versions=(0, 5), flexible=3):
    transactions: list[AddPartitionsToTxnTransaction] = field(4)
    v3_and_below_transactional_id: String = field(0, 3)
    v3_and_below_producer_id: Int64 = field(0, 3)
    v3_and_below_producer_epoch: Int16 = field(0, 3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(0, 3)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32
    partition_error_code: Int16


class AddPartitionsToTxnTopicResult(Struct):
    name: String
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(Struct):
    transactional_id: String
    topic_results: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnResponse(Message, key=24, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32
    error_code: Int16 = field(4)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(0, 3)
