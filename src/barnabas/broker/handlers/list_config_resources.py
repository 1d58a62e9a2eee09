"""ListConfigResources: the resources whose settings can be described.

Existing topics and brokers are listed, groups and client metrics subscriptions if they have settings. An
empty list of types asks for every type; version 0 only lists subscriptions. An unknown type is an error of
the whole request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.broker.settings.config_requests import BROKER_LOGGER_RESOURCE
from barnabas.controller.configs import CLIENT_METRICS_RESOURCE, GROUP_RESOURCE
from barnabas.core.errors import wire_error
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from barnabas.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services

_TYPES = (
    *(GROUP_RESOURCE, CLIENT_METRICS_RESOURCE, BROKER_LOGGER_RESOURCE, BROKER_RESOURCE),
    TOPIC_RESOURCE,
)


async def handle(
    request: ListConfigResourcesRequest, context: RequestContext, services: Services
) -> ListConfigResourcesResponse:
    asked: Sequence[int] = request.resource_types or _TYPES
    if context.api_version == 0:
        asked = (CLIENT_METRICS_RESOURCE,)
    error = wire_error("NONE")
    if any(kind not in _TYPES for kind in asked):
        asked, error = (), wire_error("UNSUPPORTED_VERSION")
    found = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind in _TYPES
        if kind in asked
        for name in _names(kind, services.image)
    ]
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=error.code, config_resources=found)


def _names(kind: int, image: ClusterImage) -> list[str]:
    if kind == TOPIC_RESOURCE:
        return sorted(image.topics_by_name)
    if kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        return [str(broker.id) for broker in image.brokers.values() if not broker.fenced]
    return sorted(name for each, name in image.configs if each == kind)
