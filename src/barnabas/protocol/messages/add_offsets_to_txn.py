"""AddOffsetsToTxn: a transaction will commit offsets of a group."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Int64, Message, String


class AddOffsetsToTxnRequest(Message, key=25, versions=(0, 4), flexible=3):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Message, key=25, versions=(0, 4), flexible=3):
    throttle_time_ms: Int32
    error_code: Int16
