"""DeleteAcls: forwarded to the active controller, which has no authorizer and answers SECURITY_DISABLED.

The controller may be Apache Kafka's, which has an authorizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.core.errors import WireError, wire_error
from barnabas.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: DeleteAclsRequest, context: RequestContext, services: ControllerServices
) -> DeleteAclsResponse:
    if context.is_at_controller:
        return _refused(request, wire_error("SECURITY_DISABLED"), "No Authorizer is configured.")
    try:
        return await services.controller.send(request, DeleteAclsResponse, context)
    except NOT_COMMITTED as error:
        return _refused(request, error.wire, error.told)


def _refused(request: DeleteAclsRequest, error: WireError, message: str) -> DeleteAclsResponse:
    results = [
        DeleteAclsFilterResult(error_code=error.code, error_message=message, matching_acls=[])
        for _ in request.filters
    ]
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)
