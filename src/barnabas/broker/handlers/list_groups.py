"""ListGroups: the groups that this node coordinates, from version 4 on by state, from 5 on by type.

What is being loaded cannot be left out silently: then the request is to be tried again. What another node
coordinates is that node's to list.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError
from barnabas.groups.listing import listed
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services


async def handle(
    request: ListGroupsRequest, context: RequestContext, services: Services
) -> ListGroupsResponse:
    groups: list[ListedGroup] = []
    try:
        for host in await services.groups.hosts():
            groups += listed(host.shard, request.states_filter, request.types_filter)
            await asyncio.sleep(0)  # there may be many: others have their turn
    except BarnabasError as error:
        return ListGroupsResponse(error_code=error.wire.code, groups=[])
    return ListGroupsResponse(error_code=0, groups=groups)
