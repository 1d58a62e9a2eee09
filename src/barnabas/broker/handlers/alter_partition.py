"""AlterPartition: the ISR that the leader of a partition asks for, decided by the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: AlterPartitionRequest, context: RequestContext, services: ControllerServices
) -> AlterPartitionResponse:
    try:
        return await services.controller.send(request, AlterPartitionResponse)
    except NOT_COMMITTED as error:
        return AlterPartitionResponse(throttle_time_ms=0, error_code=error.wire.code, topics=[])
