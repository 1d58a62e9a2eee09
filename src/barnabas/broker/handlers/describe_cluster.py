"""DescribeCluster: the brokers of the cluster, with their addresses at the listener of the request.

At a broker the response names any broker that is alive as the controller, as in Metadata. At a controller's
listener it names the quorum's leader, or -1 if that is not among the known controllers.

From version 1 on a client names the kind of node that it means to reach: a broker does not answer for
controllers, and a controller's listener, which returns the controllers, does not answer for brokers. Fenced
brokers are included on request (version 2). Without an authorizer every operation is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.handlers.metadata import CLUSTER_OPERATIONS, alive_broker
from barnabas.core.errors import wire_error
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices

_BROKERS = 1
_CONTROLLERS = 2
_NAMES = {_BROKERS: "BROKER", _CONTROLLERS: "CONTROLLER"}
_NOT_ASKED = -(2**31)
_NO_NODE = -1


async def handle(
    request: DescribeClusterRequest, context: RequestContext, services: ControllerServices
) -> DescribeClusterResponse:
    own_type = _CONTROLLERS if context.is_at_controller else _BROKERS
    if request.endpoint_type not in (_BROKERS, _CONTROLLERS):
        return _failed("UNSUPPORTED_ENDPOINT_TYPE", f"Unsupported endpoint type {request.endpoint_type}")
    if request.endpoint_type != own_type:
        told = (
            f"The request was sent to an endpoint of type {_NAMES[own_type]}, "
            f"but we wanted an endpoint of type {_NAMES[request.endpoint_type]}"
        )
        return _failed("MISMATCHED_ENDPOINT_TYPE", told)
    if own_type == _BROKERS:
        nodes, controller_id = _brokers(request, context, services), alive_broker(services)
    else:
        nodes, controller_id = _controllers(context, services), services.quorum.leader_id
    if all(node.broker_id != controller_id for node in nodes):
        controller_id = _NO_NODE
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        endpoint_type=own_type,
        cluster_id=services.cluster_id,
        controller_id=controller_id,
        brokers=nodes,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else _NOT_ASKED,
    )


def _brokers(
    request: DescribeClusterRequest, context: RequestContext, services: ControllerServices
) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(
            broker_id=broker.id, host=at.host, port=at.port, rack=broker.rack, is_fenced=broker.fenced
        )
        for broker in services.image.brokers.values()
        if (at := broker.endpoints.get(context.listener)) is not None
        and (request.include_fenced_brokers or not broker.fenced)
    ]


def _controllers(context: RequestContext, services: ControllerServices) -> list[DescribeClusterBroker]:
    """The registered controllers, and this one even before it is registered."""
    known = services.image.controllers
    nodes = [
        DescribeClusterBroker(broker_id=each.id, host=at.host, port=at.port, rack=None)
        for each in known.values()
        if (at := each.endpoints.get(context.listener)) is not None
    ]
    if services.node_id not in known:
        nodes += [
            DescribeClusterBroker(broker_id=services.node_id, host=each.host, port=each.port, rack=None)
            for each in services.quorum.controllers
            if each.name == context.listener
        ]
    return nodes


def _failed(error_name: str, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=wire_error(error_name).code,
        error_message=message,
        cluster_id="",
        brokers=[],
    )
