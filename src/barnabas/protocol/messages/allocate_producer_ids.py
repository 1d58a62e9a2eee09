"""AllocateProducerIds: a broker asks the controller for a block of producer ids; from node to node only."""

from __future__ import annotations

from barnabas.protocol.schema import Int16, Int32, Int64, Message, field


class AllocateProducerIdsRequest(Message, key=67, versions=(0, 0), flexible=0):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


class AllocateProducerIdsResponse(Message, key=67, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id_start: Int64
    producer_id_len: Int32
