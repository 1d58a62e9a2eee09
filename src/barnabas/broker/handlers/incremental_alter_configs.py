"""IncrementalAlterConfigs: single settings set (0), deleted (1), appended to (2) or subtracted from (3).

Of topics, brokers, groups and subscriptions to clients' metrics, and the levels of this broker's loggers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.settings.config_requests import alter
from barnabas.controller.configs import Alteration, Change
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services


async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext, services: Services
) -> IncrementalAlterConfigsResponse:
    asked = [
        Alteration(
            one.resource_type,
            one.resource_name,
            tuple(Change(config.name, config.config_operation, config.value) for config in one.configs),
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
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)
