"""Producer ids: each broker gets blocks of a thousand for its own use; unused ids of a block are lost."""

from __future__ import annotations

from barnabas.controller.decisions import Decision
from barnabas.core.errors import wire_error
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import ProducerIdsRecord
from barnabas.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

BLOCK_SIZE = 1000
_LARGEST_ID = (1 << 63) - 1


def allocate_producer_ids(
    image: ClusterImage, request: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    """The next block, for a broker with a current epoch."""
    broker = image.brokers.get(request.broker_id)
    first = image.next_producer_id
    if broker is None or broker.epoch != request.broker_epoch:
        return _refused("STALE_BROKER_EPOCH")
    if first > _LARGEST_ID - BLOCK_SIZE:
        return _refused("UNKNOWN_SERVER_ERROR")
    record = ProducerIdsRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, next_producer_id=first + BLOCK_SIZE
    )
    response = AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=0, producer_id_start=first, producer_id_len=BLOCK_SIZE
    )
    return Decision([record], response)


def _refused(error_name: str) -> Decision[AllocateProducerIdsResponse]:
    code = wire_error(error_name).code
    response = AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=code, producer_id_start=-1, producer_id_len=0
    )
    return Decision([], response)
