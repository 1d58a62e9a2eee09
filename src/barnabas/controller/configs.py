"""Settings altered while the cluster runs: of a topic, of a broker, of all brokers.

What results is judged as a whole, so that one change may make room for another in the same request. While
eligible leader replicas are in use, min.insync.replicas decides who is eligible: it is set for the cluster or
for a topic, never for one broker, and whoever was eligible under another value is so no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.controller.decisions import Decision, Refused
from barnabas.controller.elections import ELR_FEATURE, MIN_INSYNC_REPLICAS
from barnabas.core.errors import BarnabasError
from barnabas.metadata.image import BROKER_RESOURCE, CLUSTER_DEFAULT, TOPIC_RESOURCE, ClusterImage
from barnabas.metadata.records import ClearElrRecord, ConfigRecord
from barnabas.protocol.schema import Message

Validator = Callable[[Mapping[str, str]], None]


class ConfigResult(NamedTuple):
    """What one resource's alteration came to."""

    error_code: int = 0
    error_message: str | None = None


def alter_config(
    image: ClusterImage,
    resource_type: int,
    resource_name: str,
    changes: Mapping[str, str | None],
    validate: Validator,
) -> Decision[ConfigResult]:
    """Set what has a value, and forget what has None; `validate` judges all that is set afterwards."""
    resource = (resource_type, resource_name)
    old = image.configs.get(resource, {})
    try:
        _check_resource(image, resource_type, resource_name)
        _check_min_insync(image, resource_type, resource_name, changes)
        new = {name: value for name, value in {**old, **changes}.items() if value is not None}
        validate(new)
    except Refused as refused:
        return Decision([], ConfigResult(refused.error.code, str(refused)))
    except BarnabasError as error:
        return Decision([], ConfigResult(error.wire.code, str(error)))
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


def _check_resource(image: ClusterImage, resource_type: int, resource_name: str) -> None:
    if resource_type == TOPIC_RESOURCE:
        if image.topic(resource_name) is None:
            raise Refused("UNKNOWN_TOPIC_OR_PARTITION", f"The topic '{resource_name}' does not exist.")
    elif resource_type != BROKER_RESOURCE:
        raise Refused("INVALID_REQUEST", f"Unsupported resource type {resource_type}.")
    elif resource_name != CLUSTER_DEFAULT and not resource_name.isdecimal():
        raise Refused("INVALID_REQUEST", f"Invalid broker name: {resource_name}")


def _check_min_insync(
    image: ClusterImage, resource_type: int, resource_name: str, changes: Mapping[str, str | None]
) -> None:
    if resource_type != BROKER_RESOURCE or MIN_INSYNC_REPLICAS not in changes or not _has_elr(image):
        return
    if resource_name != CLUSTER_DEFAULT:
        problem = f"{MIN_INSYNC_REPLICAS} of one broker cannot be altered while ELR is enabled."
        raise Refused("INVALID_CONFIG", problem)
    if changes[MIN_INSYNC_REPLICAS] is None:
        problem = f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
        raise Refused("INVALID_CONFIG", problem)
