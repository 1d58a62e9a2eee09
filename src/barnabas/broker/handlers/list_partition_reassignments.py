"""ListPartitionReassignments: answered by the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext, services: ControllerServices
) -> ListPartitionReassignmentsResponse:
    try:
        return await services.controller.send(request, ListPartitionReassignmentsResponse, context)
    except NOT_COMMITTED as error:
        return ListPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=error.wire.code, error_message=error.told, topics=[]
        )
