"""ElectLeaders: decided by the controller. Version 0 only elects preferred replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED, Refused
from barnabas.controller.leaders import PREFERRED, refuse_all
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: ElectLeadersRequest, context: RequestContext, services: ControllerServices
) -> ElectLeadersResponse:
    if context.api_version == 0:
        request.election_type = PREFERRED
    try:
        return await services.controller.send(request, ElectLeadersResponse, context)
    except NOT_COMMITTED as error:
        return refuse_all(request, Refused(error.wire.name, error.told))
