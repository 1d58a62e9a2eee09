"""AlterPartitionReassignments: decided by the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext, services: ControllerServices
) -> AlterPartitionReassignmentsResponse:
    try:
        return await services.controller.send(request, AlterPartitionReassignmentsResponse, context)
    except NOT_COMMITTED as error:
        return AlterPartitionReassignmentsResponse(
            throttle_time_ms=0,
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=error.wire.code,
            error_message=error.told,
            responses=[],
        )
