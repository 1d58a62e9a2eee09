"""BrokerHeartbeat: a broker is alive, at a controller's listener.

Its connection is recorded: if it closes, that is the first sign of the broker's death
(cluster/broker_watch.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: BrokerHeartbeatRequest, context: RequestContext, services: ControllerServices
) -> BrokerHeartbeatResponse:
    try:
        return await services.controller.send(request, BrokerHeartbeatResponse, context)
    except NOT_COMMITTED as error:
        return BrokerHeartbeatResponse(throttle_time_ms=0, error_code=error.wire.code, should_shut_down=False)
