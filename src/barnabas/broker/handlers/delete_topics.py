"""DeleteTopics: by name, from version 6 on also by id; answered when it is committed.

The files are removed in the background. If delete.topic.enable is off at the active controller, every topic
of the request is refused; clients before version 3 do not know the error for that and get INVALID_REQUEST, as
in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.core.errors import WireError, wire_error
from barnabas.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.schema import NO_UUID

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices

_FIRST_WITH_DISABLED = 3


async def handle(
    request: DeleteTopicsRequest, context: RequestContext, services: ControllerServices
) -> DeleteTopicsResponse:
    if context.is_at_controller and not services.settings.boolean("delete.topic.enable"):
        knows = context.api_version >= _FIRST_WITH_DISABLED
        wire = wire_error("TOPIC_DELETION_DISABLED" if knows else "INVALID_REQUEST")
        return _refused(request, wire, "Topic deletion is disabled (delete.topic.enable=false).")
    try:
        return await services.controller.send(request, DeleteTopicsResponse, context)
    except NOT_COMMITTED as error:
        return _refused(request, error.wire, error.told)


def _refused(request: DeleteTopicsRequest, wire: WireError, message: str) -> DeleteTopicsResponse:
    asked = [DeleteTopicState(name=name, topic_id=NO_UUID) for name in request.topic_names]
    results = [
        DeletableTopicResult(
            name=state.name, topic_id=state.topic_id, error_code=wire.code, error_message=message
        )
        for state in (*asked, *request.topics)
    ]
    return DeleteTopicsResponse(throttle_time_ms=0, responses=results)
