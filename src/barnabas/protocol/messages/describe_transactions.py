"""DescribeTransactions: what a coordinator knows of transactional ids."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Int64, Message, String, Struct


class DescribeTransactionsRequest(Message, key=65, versions=(0, 0), flexible=0):
    transactional_ids: list[String]


class TopicData(Struct):
    topic: String
    partitions: list[Int32]


class TransactionState(Struct):
    error_code: Int16
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TopicData]


class DescribeTransactionsResponse(Message, key=65, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32
    transaction_states: list[TransactionState]
