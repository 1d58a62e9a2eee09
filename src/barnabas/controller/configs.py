"""Dynamic settings of topics, brokers, groups and client metrics subscriptions.

Each resource is decided separately, in the order of the request, and its resulting settings are checked as a
whole, so that several changes may be valid only together. AlterConfigs has all settings of a resource; those
not in it are removed. IncrementalAlterConfigs sets and deletes single settings, and appends to and subtracts
from lists; an unset list starts from the broker's static settings.

With eligible leader replicas, min.insync.replicas decides which replicas are eligible: it is set for the
cluster or for a topic, never for one broker, and a change of it clears the replicas that were eligible under
the old value.

Metadata before 4.3-IV0 has no cordoned directories: there `cordoned.log.dirs` cannot be altered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.controller.decisions import Decision, Refused
from barnabas.controller.elections import ELR_FEATURE, MIN_INSYNC_REPLICAS
from barnabas.controller.names import check_name
from barnabas.core.errors import BarnabasError
from barnabas.metadata.image import BROKER_RESOURCE, CLUSTER_DEFAULT, TOPIC_RESOURCE, ClusterImage
from barnabas.metadata.records import ClearElrRecord, ConfigRecord
from barnabas.metadata.versions import CORDONED_SINCE
from barnabas.protocol.schema import Message
from barnabas.protocol.wire import MAX_TEXT_BYTES

CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32

CORDONED_LOG_DIRS = "cordoned.log.dirs"

SET, DELETE, APPEND, SUBTRACT = range(4)
_OPERATIONS = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

Validator = Callable[[Mapping[str, str]], None]


class ConfigResult(NamedTuple):
    """The result of one resource's alteration."""

    error_code: int = 0
    error_message: str | None = None

    @classmethod
    def of(cls, error: BarnabasError) -> ConfigResult:
        wire = error.error if isinstance(error, Refused) else error.wire
        return cls(wire.code, error.told)


class Change(NamedTuple):
    """A change of one setting."""

    name: str
    operation: int
    value: str | None


class Alteration(NamedTuple):
    """The requested changes of one resource; `is_whole` if all other settings are removed."""

    resource_type: int
    resource_name: str
    changes: tuple[Change, ...]
    is_whole: bool = False


class ConfigRules(NamedTuple):
    """A resource's allowed settings, by type and name; and the start of an unset list, None for no list."""

    validate: Callable[[int, str, Mapping[str, str]], None]
    list_default: Callable[[int, str], str | None]


def alter_configs(
    image: ClusterImage, alterations: Sequence[Alteration], rules: ConfigRules, *, validate_only: bool = False
) -> Decision[list[ConfigResult]]:
    """The records of all valid alterations, and a result for each resource; none may be named twice."""
    records: list[Message] = []
    results: list[ConfigResult] = []
    for one in alterations:
        resource = (one.resource_type, one.resource_name)
        try:
            changes = resulting_changes(image.config(*resource), one, rules.list_default)
        except Refused as refused:
            results.append(ConfigResult.of(refused))
            continue
        decision = alter_config(image, *resource, changes, partial(rules.validate, *resource))
        records += decision.records
        results.append(decision.response)
    return Decision([] if validate_only else records, results)


def resulting_changes(
    old: Mapping[str, str], alteration: Alteration, list_default: Callable[[int, str], str | None]
) -> dict[str, str | None]:
    """The new value of each named setting; None if it is removed."""
    changes: dict[str, str | None] = dict.fromkeys(old) if alteration.is_whole else {}
    for name, operation, value in alteration.changes:
        if operation in (SET, DELETE):
            changes[name] = value if operation == SET else None
        elif operation in _OPERATIONS:
            default = list_default(alteration.resource_type, name)
            if default is None:
                problem = f"Can't {_OPERATIONS[operation]} to key {name} because its type is not LIST."
                raise Refused("INVALID_CONFIG", problem)
            changes[name] = _changed_list(old.get(name, default), operation, value or "")
        else:
            raise Refused("INVALID_REQUEST", f"Unknown operations type {operation}")
    return changes


def _changed_list(old: str, operation: int, value: str) -> str:
    parts = list(filter(None, old.split(",")))
    for part in filter(None, value.split(",")):
        if operation == APPEND and part not in parts:
            parts.append(part)
        elif operation == SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def alter_config(
    image: ClusterImage,
    resource_type: int,
    resource_name: str,
    changes: Mapping[str, str | None],
    validate: Validator,
) -> Decision[ConfigResult]:
    """Set the values, and remove settings with None; `validate` checks all settings after the change."""
    resource = (resource_type, resource_name)
    old = image.config(*resource)
    try:
        _check_resource_name(resource_type, resource_name)
        _check_min_insync(image, resource_type, resource_name, changes)
        _check_cordons(image, resource_type, changes)
        new = {name: value for name, value in {**old, **changes}.items() if value is not None}
        validate(new)
        _check_sizes(changes)
        _check_existence(image, resource_type, resource_name)
    except BarnabasError as error:
        return Decision([], ConfigResult.of(error))
    records: list[Message] = [
        ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
        for name, value in sorted(changes.items())
        if value != old.get(name)
    ]
    if _has_elr(image) and changes.get(MIN_INSYNC_REPLICAS, old.get(MIN_INSYNC_REPLICAS)) != old.get(
        MIN_INSYNC_REPLICAS
    ):
        of_topic = resource_name if resource_type == TOPIC_RESOURCE else CLUSTER_DEFAULT
        records.append(ClearElrRecord(topic_name=of_topic))
    return Decision(records, ConfigResult())


def _has_elr(image: ClusterImage) -> bool:
    return image.features.get(ELR_FEATURE, 0) > 0


def _check_resource_name(resource_type: int, resource_name: str) -> None:
    if resource_type == TOPIC_RESOURCE:
        if not resource_name:
            raise Refused("INVALID_REQUEST", "Default topic resources are not allowed.")
        check_name(resource_name)
    elif resource_type == BROKER_RESOURCE:
        if resource_name != CLUSTER_DEFAULT and not _is_node_id(resource_name):
            raise Refused("INVALID_REQUEST", "Unable to parse broker name as a base 10 number.")
    elif resource_type == GROUP_RESOURCE:
        if not resource_name:
            raise Refused("INVALID_REQUEST", "Default group resources are not allowed.")
    elif resource_type != CLIENT_METRICS_RESOURCE:
        raise Refused("INVALID_REQUEST", f"Unknown resource type {resource_type}")


def _is_node_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(2**31))


def _check_sizes(changes: Mapping[str, str | None]) -> None:
    """Repeated appends can make a value longer than a record can hold and Kafka can read."""
    for name, value in changes.items():
        if value is not None and len(value.encode()) > MAX_TEXT_BYTES:
            raise Refused("INVALID_CONFIG", f"The value of {name} is longer than {MAX_TEXT_BYTES} bytes.")


def _check_existence(image: ClusterImage, resource_type: int, resource_name: str) -> None:
    """Topics and brokers must exist; groups and subscriptions may be created later."""
    if resource_type == TOPIC_RESOURCE and image.topic(resource_name) is None:
        raise Refused("UNKNOWN_TOPIC_OR_PARTITION", f"The topic '{resource_name}' does not exist.")
    if resource_type == BROKER_RESOURCE and resource_name != CLUSTER_DEFAULT:
        node_id = int(resource_name)
        if node_id not in image.brokers and node_id not in image.controllers:
            raise Refused("BROKER_ID_NOT_REGISTERED", f"No node with id {node_id} found.")


def _check_min_insync(
    image: ClusterImage, resource_type: int, resource_name: str, changes: Mapping[str, str | None]
) -> None:
    if resource_type != BROKER_RESOURCE or MIN_INSYNC_REPLICAS not in changes or not _has_elr(image):
        return
    if resource_name != CLUSTER_DEFAULT:
        problem = f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
        raise Refused("INVALID_CONFIG", problem)
    if changes[MIN_INSYNC_REPLICAS] is None:
        problem = f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
        raise Refused("INVALID_CONFIG", problem)


def _check_cordons(image: ClusterImage, resource_type: int, changes: Mapping[str, str | None]) -> None:
    if resource_type != BROKER_RESOURCE or CORDONED_LOG_DIRS not in changes:
        return
    if image.metadata_version < CORDONED_SINCE:
        problem = (
            f"The {CORDONED_LOG_DIRS} configuration value cannot be set because it requires "
            "metadata.version >= 4.3-IV0"
        )
        raise Refused("INVALID_CONFIG", problem)
