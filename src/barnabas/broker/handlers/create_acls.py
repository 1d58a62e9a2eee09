"""CreateAcls: forwarded to the active controller, which has no authorizer and answers SECURITY_DISABLED.

The controller may be Apache Kafka's, which has an authorizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.core.errors import WireError, wire_error
from barnabas.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: CreateAclsRequest, context: RequestContext, services: ControllerServices
) -> CreateAclsResponse:
    if context.is_at_controller:
        return _refused(request, wire_error("SECURITY_DISABLED"), "No Authorizer is configured.")
    try:
        return await services.controller.send(request, CreateAclsResponse, context)
    except NOT_COMMITTED as error:
        return _refused(request, error.wire, error.told)


def _refused(request: CreateAclsRequest, error: WireError, message: str) -> CreateAclsResponse:
    results = [AclCreationResult(error_code=error.code, error_message=message) for _ in request.creations]
    return CreateAclsResponse(throttle_time_ms=0, results=results)
