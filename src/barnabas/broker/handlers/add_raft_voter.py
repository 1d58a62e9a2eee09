"""AddRaftVoter at a broker: forwarded to the leader of the quorum, which makes a node a voter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services


async def handle(
    request: AddRaftVoterRequest, context: RequestContext, services: Services
) -> AddRaftVoterResponse:
    try:
        return await services.controller.send(request, AddRaftVoterResponse, context)
    except NOT_COMMITTED as error:
        return AddRaftVoterResponse(throttle_time_ms=0, error_code=error.wire.code, error_message=error.told)
