"""CreateTopics: decided by the controller, answered when it is committed and the topics can be used.

The response has partitions, replication factor and settings of a new topic from version 5 on, its id from 7
on. The request's timeout is not used: nothing is waited for beyond the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.schema import NO_UUID

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: CreateTopicsRequest, context: RequestContext, services: ControllerServices
) -> CreateTopicsResponse:
    try:
        return await services.controller.send(request, CreateTopicsResponse, context)
    except NOT_COMMITTED as error:
        results = [_failed(topic.name, error) for topic in request.topics]
        return CreateTopicsResponse(throttle_time_ms=0, topics=results)


def _failed(name: str, error: BarnabasError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, topic_id=NO_UUID, error_code=error.wire.code, error_message=error.told, configs=[]
    )
