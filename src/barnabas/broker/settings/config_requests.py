"""Requests to alter settings: what a node answers itself, and what it forwards to the active controller.

A node refuses malformed changes. It validates changes to its own settings and to the cluster-wide defaults of
brokers, since only it knows its static settings. It sets the levels of its own loggers, which are stored
nowhere. The rest is forwarded to the controller. Every resource gets a result of its own, in the order of the
request.

A broker refuses settings of another broker: clients ask that broker. A controller accepts them, forwarded by
that broker, which has validated them, or from tools that ask the controller directly. In the latter case
nothing is validated, and directories can only be uncordoned, not cordoned, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.settings.loggers import alter_levels
from barnabas.controller.configs import (
    APPEND,
    CLIENT_METRICS_RESOURCE,
    CORDONED_LOG_DIRS,
    DELETE,
    GROUP_RESOURCE,
    SUBTRACT,
    Alteration,
    ConfigResult,
    resulting_changes,
)
from barnabas.controller.decisions import NOT_COMMITTED, Refused
from barnabas.core.errors import BarnabasError
from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.definition import Kind
from barnabas.core.settings.dynamic import check_alteration
from barnabas.metadata.image import BROKER_RESOURCE, CLUSTER_DEFAULT, TOPIC_RESOURCE

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import ControllerServices

BROKER_LOGGER_RESOURCE = 8

_STORED = (TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)


# sends the resources at these positions of the request to the controller, and returns their results
Forward = Callable[[Sequence[int]], Awaitable[Sequence[ConfigResult]]]


async def alter(
    asked: Sequence[Alteration],
    context: RequestContext,
    services: ControllerServices,
    forward: Forward,
    *,
    validate_only: bool,
) -> list[ConfigResult]:
    """Carry out, or only validate, the changes; returns a result for each resource."""
    times = Counter((one.resource_type, one.resource_name) for one in asked)
    results: dict[int, ConfigResult] = {}
    for index, one in enumerate(asked):
        try:
            if times[one.resource_type, one.resource_name] > 1:
                raise Refused("INVALID_REQUEST", "Each resource must appear at most once.")
            _check_form(one)
            if one.resource_type == BROKER_LOGGER_RESOURCE and not one.is_whole:
                _check_node_id(one.resource_name, services, "node id. Expected")
                alter_levels(one.changes, validate_only=validate_only)
                results[index] = ConfigResult()
            elif one.resource_type == BROKER_RESOURCE and not context.is_forwarded:
                _check_broker(one, services, at_controller=context.is_at_controller)
            elif one.resource_type not in _STORED:
                raise Refused("INVALID_REQUEST", f"Unknown resource type {one.resource_type}")
        except BarnabasError as error:
            results[index] = ConfigResult.of(error)
    rest = [index for index in range(len(asked)) if index not in results]
    if rest:
        try:
            results.update(zip(rest, await forward(rest), strict=True))
        except NOT_COMMITTED as error:
            results.update(dict.fromkeys(rest, ConfigResult.of(error)))
    return [results[index] for index in range(len(asked))]


def _check_form(one: Alteration) -> None:
    names = [change.name for change in one.changes]
    if len(set(names)) < len(names):
        raise Refused("INVALID_REQUEST", "Error due to duplicate config keys")
    nulls = [change.name for change in one.changes if change.operation != DELETE and change.value is None]
    if nulls:
        raise Refused("INVALID_REQUEST", f"Null value not supported for : {', '.join(nulls)}")


def _check_node_id(name: str, services: ControllerServices, words: str) -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise Refused("INVALID_REQUEST", f"Node id must be an integer, but it is: {name}") from None
    if node_id != services.node_id or name != str(node_id):  # settings stored for "01" would never be found
        raise Refused("INVALID_REQUEST", f"Unexpected {words} {services.node_id}, but received {name}")


def _check_broker(one: Alteration, services: ControllerServices, *, at_controller: bool) -> None:
    of_one_broker = one.resource_name != CLUSTER_DEFAULT
    if at_controller:
        _check_cordons(one, services)
    if of_one_broker:
        if at_controller and one.resource_name != str(services.node_id):
            return  # the controller knows which nodes there are
        _check_node_id(one.resource_name, services, "broker id, expected")
    for change in one.changes:
        if change.operation in (APPEND, SUBTRACT):
            _check_is_list(change.name, change.operation)
    old = services.image.broker_config(one.resource_name)
    changes = resulting_changes(old, one, services.config_rules().list_default)
    new = {name: value for name, value in {**old, **changes}.items() if value is not None}
    check_alteration(new, services.settings, of_one_broker=of_one_broker)


def _check_cordons(one: Alteration, services: ControllerServices) -> None:
    """Refuse to cordon further directories: a controller does not know the paths of a broker's
    directories."""
    old = services.image.broker_config(one.resource_name)
    new = resulting_changes(old, one, services.config_rules().list_default).get(CORDONED_LOG_DIRS)
    if new and not set(_paths(new)) <= set(_paths(old.get(CORDONED_LOG_DIRS, ""))):
        problem = f"Directories are cordoned at their broker: a controller only shortens {CORDONED_LOG_DIRS}."
        raise Refused("INVALID_CONFIG", problem)


def _paths(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _check_is_list(name: str, operation: int) -> None:
    setting = BROKER.get(name)
    if setting is None:
        raise Refused("INVALID_CONFIG", f"Unknown config name: {name}")
    if setting.kind is not Kind.LIST:
        word = "append" if operation == APPEND else "subtract"
        raise Refused("INVALID_CONFIG", f"Config value {word} is not allowed for config key: {name}")
