"""Heartbeat: a member is alive; the response tells whether it has to rejoin.

While the group is being loaded the member is unknown: the response has no error, and the member repeats it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.callers import caller_of
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services

_LOADING = wire_error("COORDINATOR_LOAD_IN_PROGRESS")


async def handle(request: HeartbeatRequest, context: RequestContext, services: Services) -> HeartbeatResponse:
    caller = caller_of(context)
    try:
        response: HeartbeatResponse = await services.groups.ask(
            request.group_id,
            lambda shard, now, reply: shard.heartbeat(request, caller, now, reply),
            writes=False,
        )
    except BarnabasError as error:
        return HeartbeatResponse(error_code=0 if error.wire is _LOADING else error.wire.code)
    return response
