"""SyncGroup: answered when the leader of the generation has handed in who gets what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.callers import caller_of
from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from barnabas.broker.requests import RequestContext
    from barnabas.broker.services import Services


async def handle(request: SyncGroupRequest, context: RequestContext, services: Services) -> SyncGroupResponse:
    caller = caller_of(context)
    try:
        response: SyncGroupResponse = await services.groups.ask(
            request.group_id, lambda shard, now, reply: shard.sync(request, caller, now, reply)
        )
    except BarnabasError as error:
        return SyncGroupResponse(error_code=error.wire.code, assignment=b"")
    return response
