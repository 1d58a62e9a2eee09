"""DeleteGroups: deletes groups without members, with their committed offsets; each group by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError
from barnabas.groups.listing import delete
from barnabas.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services


async def handle(
    request: DeleteGroupsRequest, context: RequestContext, services: Services
) -> DeleteGroupsResponse:
    results = [await _deleted(group_id, services) for group_id in dict.fromkeys(request.groups_names)]
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)


async def _deleted(group_id: str, services: Services) -> DeletableGroupResult:
    results: list[DeletableGroupResult] = []
    try:
        while not results:  # it may have more committed offsets than one command deletes
            response: DeleteGroupsResponse = await services.groups.ask(
                group_id, lambda shard, now, reply: delete(shard, group_id, reply), only_records=True
            )
            results = response.results
    except BarnabasError as error:
        return DeletableGroupResult(group_id=group_id, error_code=error.wire.code)
    return results[0]
