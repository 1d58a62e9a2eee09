"""DescribeGroups: state, protocol and members of classic groups, from their coordinator.

A group that does not exist is Dead, and from version 6 on also an error. Without an authorizer every
operation is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.callers import caller_of
from barnabas.coordination.effects import Caller
from barnabas.core.errors import BarnabasError
from barnabas.groups.listing import describe
from barnabas.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services

# read, delete, describe, describe configs, alter configs: bits by Kafka's numbers of operations
GROUP_OPERATIONS = 0b1101_0100_1000


async def handle(
    request: DescribeGroupsRequest, context: RequestContext, services: Services
) -> DescribeGroupsResponse:
    caller = caller_of(context)
    groups = [await _described(group_id, caller, services) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == 0:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


async def _described(group_id: str, caller: Caller, services: Services) -> DescribedGroup:
    try:
        response: DescribeGroupsResponse = await services.groups.ask(
            group_id, lambda shard, now, reply: describe(shard, group_id, caller, reply), writes=False
        )
    except BarnabasError as error:
        return DescribedGroup(
            error_code=error.wire.code,
            group_id=group_id,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        )
    return response.groups[0]
