"""IncrementalAlterConfigs: sets (0), deletes (1), appends to (2) or subtracts from (3) single settings.

For topics, brokers, groups and client metrics subscriptions, and the levels of this broker's loggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.broker.settings.config_requests import alter
from barnabas.controller.config_messages import alterations_of, incremental_response_of, results_of
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices
    from barnabas.controller.configs import ConfigResult


async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext, services: ControllerServices
) -> IncrementalAlterConfigsResponse:
    asked, validate_only = alterations_of(request), request.validate_only

    async def forward(indexes: Sequence[int]) -> list[ConfigResult]:
        resources = [request.resources[index] for index in indexes]
        forwarded = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
        response = await services.controller.send(forwarded, IncrementalAlterConfigsResponse, context)
        return results_of([asked[index] for index in indexes], response)

    return incremental_response_of(
        asked, await alter(asked, context, services, forward, validate_only=validate_only)
    )
