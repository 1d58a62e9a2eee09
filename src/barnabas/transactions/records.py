"""The records of `__transaction_state`, as Kafka's transaction coordinator writes them."""

from __future__ import annotations

from barnabas.coordination.records import Kind
from barnabas.protocol.schema import Int8, Int16, Int32, Int64, Message, String, Struct, field


class TransactionLogKey(Message, key=0):
    transactional_id: String


class TransactionPartitions(Struct):
    topic: String
    partition_ids: list[Int32]


class TransactionLogValue(Message, key=0, versions=(0, 1), flexible=1):
    producer_id: Int64
    previous_producer_id: Int64 = field(1, tag=0, default=-1)
    next_producer_id: Int64 = field(1, tag=1, default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = field(1, tag=3, default=-1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[TransactionPartitions] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field(1, tag=2, default=0)


KINDS: dict[int, Kind] = {0: Kind("TransactionLog", TransactionLogKey, TransactionLogValue)}
