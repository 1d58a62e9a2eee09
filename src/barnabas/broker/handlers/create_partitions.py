"""CreatePartitions: decided by the controller, answered when the new partitions can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: CreatePartitionsRequest, context: RequestContext, services: ControllerServices
) -> CreatePartitionsResponse:
    try:
        return await services.controller.send(request, CreatePartitionsResponse, context)
    except NOT_COMMITTED as error:
        results = [
            CreatePartitionsTopicResult(name=topic.name, error_code=error.wire.code, error_message=error.told)
            for topic in request.topics
        ]
        return CreatePartitionsResponse(throttle_time_ms=0, results=results)
