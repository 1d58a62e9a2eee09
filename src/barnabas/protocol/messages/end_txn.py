"""EndTxn: commit or abort; from version 5 on the producer's next epoch comes back."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int16, Int32, Int64, Message, String, field


class EndTxnRequest(Message, key=26, versions=(0, 5), flexible=3):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class EndTxnResponse(Message, key=26, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field(5, default=-1)
    producer_epoch: Int16 = field(5, default=-1)
