"""LeaveGroup: members leave. Up to version 2 it is one member, and its error is that of the whole request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.callers import caller_of
from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services

_FIRST_WITH_SEVERAL = 3


async def handle(
    request: LeaveGroupRequest, context: RequestContext, services: Services
) -> LeaveGroupResponse:
    caller = caller_of(context)
    is_single = context.api_version < _FIRST_WITH_SEVERAL
    if is_single:
        request.members = [MemberIdentity(member_id=request.member_id)]
    try:
        response: LeaveGroupResponse = await services.groups.ask(
            request.group_id, lambda shard, now, reply: shard.leave(request, caller, now, reply)
        )
    except BarnabasError as error:
        return LeaveGroupResponse(error_code=error.wire.code, members=[])
    if is_single and response.members:
        response.error_code = response.error_code or response.members[0].error_code
    return response
