"""AssignReplicasToDirs: reports the directories of a broker's replicas, decided by the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: AssignReplicasToDirsRequest, context: RequestContext, services: ControllerServices
) -> AssignReplicasToDirsResponse:
    try:
        return await services.controller.send(request, AssignReplicasToDirsResponse)
    except NOT_COMMITTED as error:
        return AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=error.wire.code, directories=[])
