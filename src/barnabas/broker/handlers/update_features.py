"""UpdateFeatures: decided by the controller, all of it or nothing. Version 0 can only upgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: UpdateFeaturesRequest, context: RequestContext, services: ControllerServices
) -> UpdateFeaturesResponse:
    try:
        return await services.controller.send(request, UpdateFeaturesResponse, context)
    except NOT_COMMITTED as error:
        return UpdateFeaturesResponse(
            throttle_time_ms=0, error_code=error.wire.code, error_message=str(error)
        )
