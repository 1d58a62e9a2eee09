"""DescribeClientQuotas: read from the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.quotas import describe_quotas
from barnabas.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services


async def handle(
    request: DescribeClientQuotasRequest, context: RequestContext, services: Services
) -> DescribeClientQuotasResponse:
    return describe_quotas(services.image, request)
