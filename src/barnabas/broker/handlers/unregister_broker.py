"""UnregisterBroker: removes a broker from the metadata.

As in Kafka it may be a live one, even this one: then its partitions have no leader, or another one, and it
serves none until it is restarted, which registers it again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices

logger = logging.getLogger("barnabas.cluster")


async def handle(
    request: UnregisterBrokerRequest, context: RequestContext, services: ControllerServices
) -> UnregisterBrokerResponse:
    try:
        response = await services.controller.send(request, UnregisterBrokerResponse, context)
    except NOT_COMMITTED as error:
        return UnregisterBrokerResponse(
            throttle_time_ms=0, error_code=error.wire.code, error_message=error.told
        )
    is_own = request.broker_id == services.node_id
    if is_own and not response.error_code and not context.is_forwarded:
        logger.warning("this broker was unregistered: it serves no partition until it is started anew")
    return response
