"""FindCoordinator: the node that coordinates a group or a transactional id.

The request has one key up to version 3, several from 4 on; transactional ids from 1 on. The coordinator is
the leader of the key's partition in the coordinator's topic. If the topic does not exist it is created and
the response waits for it, as in Metadata. Share groups (from 6 on) have no coordinator here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.log.checkpoints import uuid_from_text
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services

_GROUP = 0
_TRANSACTION = 1
_SHARE = 2
_FIRST_WITH_SEVERAL = 4
_FIRST_WITH_SHARES = 6
_NO_NODE = -1


async def handle(
    request: FindCoordinatorRequest, context: RequestContext, services: Services
) -> FindCoordinatorResponse:
    if context.api_version >= _FIRST_WITH_SEVERAL:
        found = [await _find(key, request.key_type, context, services) for key in request.coordinator_keys]
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=found)
    one = await _find(request.key, request.key_type, context, services)
    return FindCoordinatorResponse(
        throttle_time_ms=0,
        coordinators=[],
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(key: str, key_type: int, context: RequestContext, services: Services) -> Coordinator:
    if key_type == _GROUP:
        return await _leader(key, services.groups.find, context, services)
    if key_type == _TRANSACTION:
        return await _leader(key, services.transactions.find, context, services)
    if key_type != _SHARE or context.api_version < _FIRST_WITH_SHARES:
        return _failed(key, "INVALID_REQUEST", f"There are no coordinators of type {key_type}.")
    if not _is_share(key):
        return _failed(key, "INVALID_REQUEST", "The key of a share is group:topicId:partition.")
    return _failed(key, "UNSUPPORTED_VERSION", "This broker does not serve share groups.")


async def _leader(
    key: str, find: Callable[[str], Awaitable[int]], context: RequestContext, services: Services
) -> Coordinator:
    try:
        node_id = await find(key)
    except BarnabasError as error:
        return _failed(key, "COORDINATOR_NOT_AVAILABLE", str(error))
    broker = services.image.brokers.get(node_id)
    at = None if broker is None else broker.endpoints.get(context.listener)
    if at is None:
        return _failed(key, "COORDINATOR_NOT_AVAILABLE", f"Listener {context.listener} is not advertised.")
    return Coordinator(key=key, node_id=node_id, host=at.host, port=at.port, error_code=0, error_message="")


def _is_share(key: str) -> bool:
    try:
        group, topic_id, partition = key.rsplit(":", 2)
        uuid_from_text(topic_id)
    except ValueError:
        return False
    return group != "" and partition.isdecimal()


def _failed(key: str, error_name: str, message: str) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=_NO_NODE,
        host="",
        port=_NO_NODE,
        error_code=wire_error(error_name).code,
        error_message=message,
    )
