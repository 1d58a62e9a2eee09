"""SyncGroup: answered when the leader of the generation has sent the assignment.

From version 5 on a member must name its protocol. An assignment that does not fit into one batch of the log
is an UNKNOWN_SERVER_ERROR for all waiting members, as in Kafka, and they rejoin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.callers import caller_of
from barnabas.coordination.effects import Caller
from barnabas.core.errors import BarnabasError, RecordListTooLarge, wire_error
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services

_FIRST_WITH_PROTOCOL = 5
_INCONSISTENT = wire_error("INCONSISTENT_GROUP_PROTOCOL").code


async def handle(request: SyncGroupRequest, context: RequestContext, services: Services) -> SyncGroupResponse:
    if context.api_version >= _FIRST_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=_INCONSISTENT, assignment=b"")
    caller = caller_of(context)
    try:
        return await _synced(request, caller, services)
    except BarnabasError as error:
        return SyncGroupResponse(error_code=error.wire.code, assignment=b"")


async def _synced(request: SyncGroupRequest, caller: Caller, services: Services) -> SyncGroupResponse:
    groups = services.groups
    response: SyncGroupResponse
    try:
        response = await groups.ask(
            request.group_id,
            lambda shard, now, reply: shard.sync(request, caller, now, reply),
            only_records=True,
        )
    except RecordListTooLarge:
        response = await groups.ask(
            request.group_id, lambda shard, now, reply: shard.sync_failed(request, now, reply)
        )
    return response
