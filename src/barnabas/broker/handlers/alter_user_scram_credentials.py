"""AlterUserScramCredentials: forwarded to the active controller, which answers SECURITY_DISABLED for each
user.

There is no authentication here yet, and a node stops when it finds new credentials, since it cannot enforce
them. The controller may be Apache Kafka's, which stores them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.core.errors import WireError, wire_error
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: AlterUserScramCredentialsRequest, context: RequestContext, services: ControllerServices
) -> AlterUserScramCredentialsResponse:
    if context.is_at_controller:
        return _refused(request, wire_error("SECURITY_DISABLED"), "This controller keeps no credentials.")
    try:
        return await services.controller.send(request, AlterUserScramCredentialsResponse, context)
    except NOT_COMMITTED as error:
        return _refused(request, error.wire, error.told)


def _refused(
    request: AlterUserScramCredentialsRequest, error: WireError, message: str
) -> AlterUserScramCredentialsResponse:
    users = {each.name for each in request.deletions} | {each.name for each in request.upsertions}
    results = [
        AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=message)
        for user in sorted(users)
    ]
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)
