"""DescribeCluster: the brokers of the cluster, as reached through the listener that was asked.

From version 1 on a client says which kind of node it believes to talk to: a broker does not answer for
controllers. Fenced brokers are shown to those who ask for them (version 2). Without access rules every
operation is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.handlers.metadata import CLUSTER_OPERATIONS
from barnabas.core.errors import wire_error
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.requests import RequestContext
    from barnabas.broker.services import Services

_BROKERS = 1
_CONTROLLERS = 2
_NOT_ASKED = -(2**31)


async def handle(
    request: DescribeClusterRequest, context: RequestContext, services: Services
) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return _failed("MISMATCHED_ENDPOINT_TYPE", "This is an endpoint of a broker, not of a controller.")
    if request.endpoint_type != _BROKERS:
        return _failed("UNSUPPORTED_ENDPOINT_TYPE", f"Unsupported endpoint type {request.endpoint_type}")
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.id, host=at.host, port=at.port, rack=broker.rack, is_fenced=broker.fenced
            )
            for broker in services.image.brokers.values()
            if (at := broker.endpoints.get(context.listener)) is not None
            and (request.include_fenced_brokers or not broker.fenced)
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else _NOT_ASKED,
    )


def _failed(error_name: str, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=wire_error(error_name).code,
        error_message=message,
        cluster_id="",
        brokers=[],
    )
