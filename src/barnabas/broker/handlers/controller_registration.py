"""ControllerRegistration: registers a controller's addresses, at a controller's listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: ControllerRegistrationRequest, context: RequestContext, services: ControllerServices
) -> ControllerRegistrationResponse:
    try:
        return await services.controller.send(request, ControllerRegistrationResponse, context)
    except NOT_COMMITTED as error:
        return ControllerRegistrationResponse(
            throttle_time_ms=0, error_code=error.wire.code, error_message=error.told
        )
