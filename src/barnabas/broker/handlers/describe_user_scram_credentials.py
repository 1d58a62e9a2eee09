"""DescribeUserScramCredentials: the users with credentials in the metadata, and their mechanisms.

The credentials come from Apache Kafka and are kept for it; they are not used here. No users, or an empty list
of them, ask for all.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.core.errors import wire_error
from barnabas.metadata.records import UserScramCredentialRecord
from barnabas.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext, services: ControllerServices
) -> DescribeUserScramCredentialsResponse:
    kept: dict[str, list[CredentialInfo]] = {}
    for record in services.image.kept.values():
        if isinstance(record, UserScramCredentialRecord):
            info = CredentialInfo(mechanism=record.mechanism, iterations=record.iterations)
            kept.setdefault(record.name, []).append(info)
    asked = Counter(each.name for each in request.users or ()) or Counter(sorted(kept))
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message="",
        results=[_result(name, times, kept.get(name)) for name, times in asked.items()],
    )


def _result(
    name: str, times_asked: int, infos: list[CredentialInfo] | None
) -> DescribeUserScramCredentialsResult:
    error_name, message = "NONE", None
    if times_asked > 1:
        error_name = "DUPLICATE_RESOURCE"
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif infos is None:
        error_name = "RESOURCE_NOT_FOUND"
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=wire_error(error_name).code,
        error_message=message,
        credential_infos=infos or [] if times_asked == 1 else [],
    )
