"""DescribeAcls: SECURITY_DISABLED, at brokers and controllers alike: there is no authorizer yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import wire_error
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: DescribeAclsRequest, context: RequestContext, services: ControllerServices
) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        throttle_time_ms=0,
        error_code=wire_error("SECURITY_DISABLED").code,
        error_message="No Authorizer is configured on the broker",
        resources=[],
    )
