"""ListPartitionReassignments: read from the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.reassignments import list_reassignments
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices


async def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext, services: ControllerServices
) -> ListPartitionReassignmentsResponse:
    return list_reassignments(services.image, request)
