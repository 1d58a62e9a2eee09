"""Finalised levels of features, and the rules for changing them.

A request succeeds or fails as a whole. A level is finalised only if every registered node supports it, and
every voter is registered. Levels that Kafka finalised and this version does not serve are kept.
metadata.version can be lowered only as long as no record would lose data. `kraft.version` belongs to the
quorum and is in its log, not in the image, so that a change of it is part of the response (`kraft_version`)
and not of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from barnabas.controller.bootstrap import KRAFT_FEATURE, SUPPORTED_FEATURES
from barnabas.controller.decisions import Decision, Refused
from barnabas.controller.elections import ELR_FEATURE, MIN_INSYNC_REPLICAS
from barnabas.metadata.image import BROKER_RESOURCE, CLUSTER_DEFAULT, METADATA_VERSION, ClusterImage
from barnabas.metadata.records import ConfigRecord, FeatureLevelRecord
from barnabas.metadata.versions import CONTROLLERS_SINCE, ELR_SINCE, loses_metadata
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.protocol.schema import Message

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
# a level of the first needs one of the second
_NEEDS = {(ELR_FEATURE, 1): (METADATA_VERSION, ELR_SINCE)}


class FeaturesUpdated(NamedTuple):
    """The response, and the new level of the quorum's own protocol."""

    response: UpdateFeaturesResponse
    kraft_version: int


def update_features(
    image: ClusterImage,
    request: UpdateFeaturesRequest,
    *,
    node_id: int,
    kraft_version: int,
    kraft_version_problem: Callable[[int], str] = lambda version: "",
    voters: Collection[int] = (),
    min_insync_replicas: int = 1,
) -> Decision[FeaturesUpdated]:
    """Finalise other levels. `min_insync_replicas` is the cluster's value when eligible leader replicas
    begin. `voters` are the controllers that must have registered, if the version supports that.
    `kraft_version_problem` gives the reason why the quorum cannot change to a version, empty if it can."""
    levels = {**image.features, KRAFT_FEATURE: kraft_version}
    updates = {
        update.feature: update for update in request.feature_updates
    }  # of two updates of one feature, the last counts
    wanted = {name: update.max_version_level for name, update in updates.items()}
    try:
        for update in updates.values():
            _check(update, levels, wanted, partial(_check_nodes, image, node_id, voters))
            if update.feature == KRAFT_FEATURE and (problem := kraft_version_problem(wanted[KRAFT_FEATURE])):
                raise Refused("INVALID_UPDATE_VERSION", problem)
    except Refused as refused:
        told = f"The update failed for all features since the following feature had an error: {refused}"
        failed = UpdateFeaturesResponse(throttle_time_ms=0, error_code=refused.error.code, error_message=told)
        return Decision([], FeaturesUpdated(failed, kraft_version))
    results = [
        UpdatableFeatureResult(feature=update.feature, error_code=0, error_message="NONE")
        for update in request.feature_updates
    ]
    done = UpdateFeaturesResponse(throttle_time_ms=0, error_code=0, error_message=None, results=results)
    if request.validate_only:
        return Decision([], FeaturesUpdated(done, kraft_version))
    kraft_version = wanted.pop(KRAFT_FEATURE, kraft_version)
    return Decision(_records(image, wanted, min_insync_replicas), FeaturesUpdated(done, kraft_version))


def _check(
    update: FeatureUpdateKey,
    levels: dict[str, int],
    wanted: dict[str, int],
    check_nodes: Callable[[FeatureUpdateKey], None],
) -> None:
    """Refused if the level of a feature cannot be changed as requested."""
    name, new, kind = update.feature, update.max_version_level, update.upgrade_type
    old = levels.get(name, 0)
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if new < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    if name not in SUPPORTED_FEATURES and new == old > 0:
        return  # a level that Kafka finalised, unchanged
    check_nodes(update)
    if new < old and kind == _UPGRADE:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade.",
        )
    if new > old and kind != _UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION and loses_metadata(old, new):
        why = (
            "Unsafe metadata downgrade is not supported in this version."
            if kind == _UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        raise Refused(
            "INVALID_UPDATE_VERSION", f"Unsupported metadata.version downgrade from {old} to {new}. {why}"
        )
    if name == KRAFT_FEATURE and new < old:
        raise _invalid(update, "Can't downgrade the version of this feature.")
    _check_needs(update, {**levels, **wanted})


def _check_nodes(
    image: ClusterImage, node_id: int, voters: Collection[int], update: FeatureUpdateKey
) -> None:
    """Refused if a node does not support the level, or has not registered."""
    name = update.feature
    if name not in SUPPORTED_FEATURES and update.max_version_level == 0:
        raise _invalid(update, f"Feature {name} not found.")
    _check_support(update, f"Local controller {node_id}", SUPPORTED_FEATURES)
    for broker in image.brokers.values():
        _check_support(update, f"Broker {broker.id}", broker.features)
    if image.metadata_version < CONTROLLERS_SINCE:
        return
    for controller in image.controllers.values():
        if controller.id != node_id:
            _check_support(update, f"Controller {controller.id}", controller.features)
    for voter in voters:
        if voter != node_id and voter not in image.controllers:
            raise _invalid(update, f"controller {voter} has not registered, and may not support this feature")


def _check_support(update: FeatureUpdateKey, who: str, ranges: Mapping[str, tuple[int, int]]) -> None:
    low, high = ranges.get(update.feature, (0, 0))
    if low <= update.max_version_level <= high:
        return
    if high == 0:
        raise _invalid(update, f"{who} does not support this feature.")
    told = f"{low}" if low == high else f"{low}-{high}"
    raise _invalid(update, f"{who} only supports versions {told}")


def _check_needs(update: FeatureUpdateKey, levels: dict[str, int]) -> None:
    name, level = update.feature, update.max_version_level
    needed = _NEEDS.get((name, level))
    if needed is not None and levels.get(needed[0], 0) < needed[1]:
        raise _invalid(
            update,
            f"{name} could not be set to {level} because it depends on {needed[0]} level {needed[1]}",
        )


def _invalid(update: FeatureUpdateKey, why: str) -> Refused:
    told = f"Invalid update version {update.max_version_level} for feature {update.feature}. {why}"
    return Refused("INVALID_UPDATE_VERSION", told)


def _records(image: ClusterImage, wanted: dict[str, int], min_insync_replicas: int) -> list[Message]:
    records: list[Message] = [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in wanted.items()
        if name in SUPPORTED_FEATURES
    ]
    if wanted.get(ELR_FEATURE, 0) > image.features.get(ELR_FEATURE, 0):
        records += _one_min_insync_replicas(image, min_insync_replicas)
    return records


def _one_min_insync_replicas(image: ClusterImage, min_insync_replicas: int) -> list[Message]:
    """With eligible leader replicas, min.insync.replicas is in the metadata, the same for all brokers."""
    records: list[Message] = []
    if MIN_INSYNC_REPLICAS not in image.broker_config():
        records.append(_config(CLUSTER_DEFAULT, str(min_insync_replicas)))
    for resource_type, name in sorted(image.configs):
        values = image.configs[resource_type, name]
        if resource_type == BROKER_RESOURCE and name != CLUSTER_DEFAULT and MIN_INSYNC_REPLICAS in values:
            records.append(_config(name, None))
    return records


def _config(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=BROKER_RESOURCE, resource_name=broker, name=MIN_INSYNC_REPLICAS, value=value
    )
