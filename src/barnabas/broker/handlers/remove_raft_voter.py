"""RemoveRaftVoter at a broker: forwarded to the leader of the quorum, which makes a voter an observer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services


async def handle(
    request: RemoveRaftVoterRequest, context: RequestContext, services: Services
) -> RemoveRaftVoterResponse:
    try:
        return await services.controller.send(request, RemoveRaftVoterResponse, context)
    except NOT_COMMITTED as error:
        return RemoveRaftVoterResponse(
            throttle_time_ms=0, error_code=error.wire.code, error_message=error.told
        )
