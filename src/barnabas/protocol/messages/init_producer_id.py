"""InitProducerId: a producer id and its epoch."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int16, Int32, Int64, Message, String, field


class InitProducerIdRequest(Message, key=22, versions=(0, 6), flexible=2):
    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field(3, default=-1)
    producer_epoch: Int16 = field(3, default=-1)
    enable2_pc: Bool = field(6, default=False)
    keep_prepared_txn: Bool = field(6, default=False)


class InitProducerIdResponse(Message, key=22, versions=(0, 6), flexible=2):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = field(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = field(6, default=-1)
