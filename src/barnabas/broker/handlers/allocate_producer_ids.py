"""AllocateProducerIds: a block of producer ids for a broker, decided by the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: AllocateProducerIdsRequest, context: RequestContext, services: ControllerServices
) -> AllocateProducerIdsResponse:
    try:
        return await services.controller.send(request, AllocateProducerIdsResponse)
    except NOT_COMMITTED as error:
        return AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=error.wire.code, producer_id_start=0, producer_id_len=0
        )
