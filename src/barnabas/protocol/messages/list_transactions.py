"""ListTransactions: the transactions of one coordinator, filtered."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Int64, Message, String, Struct, field


class ListTransactionsRequest(Message, key=66, versions=(0, 2), flexible=0):
    state_filters: list[String]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field(1, default=-1)
    transactional_id_pattern: String | None = field(2, default=None)


class TransactionState(Struct):
    transactional_id: String
    producer_id: Int64
    transaction_state: String


class ListTransactionsResponse(Message, key=66, versions=(0, 2), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: list[String]
    transaction_states: list[TransactionState]
