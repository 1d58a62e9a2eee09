"""JoinGroup: answered when the next generation of the group is complete.

Version 0 has one timeout for session and rebalance. From 4 on a new member gets its id before it joins, from
5 on a static member may take its place again, and from 9 on a leader may be told to skip the assignment.
Before 7 a missing protocol is an empty string.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.callers import caller_of
from barnabas.core.errors import BarnabasError
from barnabas.groups.classic_rebalance import refused_join
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services

_FIRST_WITHOUT_PROTOCOL = 7


async def handle(request: JoinGroupRequest, context: RequestContext, services: Services) -> JoinGroupResponse:
    caller = caller_of(context)
    response: JoinGroupResponse
    try:
        response = await services.groups.ask(
            request.group_id, lambda shard, now, reply: shard.join(request, caller, now, reply)
        )
    except BarnabasError as error:
        response = refused_join(error.wire, request.member_id)
    if response.protocol_name is None and context.api_version < _FIRST_WITHOUT_PROTOCOL:
        response.protocol_name = ""
    return response
