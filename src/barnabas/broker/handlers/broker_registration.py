"""BrokerRegistration: a broker starts, at a controller's listener. Errors have no message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: BrokerRegistrationRequest, context: RequestContext, services: ControllerServices
) -> BrokerRegistrationResponse:
    try:
        return await services.controller.send(request, BrokerRegistrationResponse, context)
    except NOT_COMMITTED as error:
        return BrokerRegistrationResponse(throttle_time_ms=0, error_code=error.wire.code)
