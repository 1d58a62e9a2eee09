"""AlterClientQuotas: decided by the controller, kept, and not enforced yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED, Refused
from barnabas.controller.quotas import refuse_alterations
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: AlterClientQuotasRequest, context: RequestContext, services: ControllerServices
) -> AlterClientQuotasResponse:
    try:
        return await services.controller.send(request, AlterClientQuotasResponse, context)
    except NOT_COMMITTED as error:
        return refuse_alterations(request, Refused(error.wire.name, error.told))
