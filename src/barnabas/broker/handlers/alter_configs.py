"""AlterConfigs: all that is set for topics, brokers, groups and subscriptions, in place of what was set.

Older than IncrementalAlterConfigs, and dangerous where two people alter one resource; levels of loggers are
not altered by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.settings.config_requests import alter
from barnabas.controller.configs import SET, Alteration, Change
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services


async def handle(
    request: AlterConfigsRequest, context: RequestContext, services: Services
) -> AlterConfigsResponse:
    asked = [
        Alteration(
            one.resource_type,
            one.resource_name,
            tuple(Change(config.name, SET, config.value) for config in one.configs),
            is_whole=True,
        )
        for one in request.resources
    ]
    results = await alter(asked, services, validate_only=request.validate_only)
    responses = [
        AlterConfigsResourceResponse(
            error_code=result.error_code,
            error_message=result.error_message,
            resource_type=one.resource_type,
            resource_name=one.resource_name,
        )
        for one, result in zip(asked, results, strict=True)
    ]
    return AlterConfigsResponse(throttle_time_ms=0, responses=responses)
