"""AlterConfigs: replaces all settings of topics, brokers, groups and client metrics subscriptions.

It is older than IncrementalAlterConfigs, and dangerous if two people alter one resource. It does not alter
levels of loggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.broker.settings.config_requests import alter
from barnabas.controller.config_messages import alterations_of, response_of, results_of
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices
    from barnabas.controller.configs import ConfigResult


async def handle(
    request: AlterConfigsRequest, context: RequestContext, services: ControllerServices
) -> AlterConfigsResponse:
    asked, validate_only = alterations_of(request), request.validate_only

    async def forward(indexes: Sequence[int]) -> list[ConfigResult]:
        resources = [request.resources[index] for index in indexes]
        forwarded = AlterConfigsRequest(resources=resources, validate_only=validate_only)
        response = await services.controller.send(forwarded, AlterConfigsResponse, context)
        return results_of([asked[index] for index in indexes], response)

    return response_of(asked, await alter(asked, context, services, forward, validate_only=validate_only))
