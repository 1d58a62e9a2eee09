"""ListGroups: the groups that this node coordinates, from version 4 on by state, from 5 on by type.

While a partition is being loaded its groups would be missing: then the request gets an error and is retried.
Groups of other coordinators are not listed.
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
            await asyncio.sleep(0)  # let other tasks run: there may be many groups
    except BarnabasError as error:
        return ListGroupsResponse(error_code=error.wire.code, groups=[])
    return ListGroupsResponse(error_code=0, groups=groups)
