"""What is finalised, where Apache Kafka is not asked: the records, and levels that nothing here serves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.controller.features import FeaturesUpdated, update_features
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import (
    ConfigRecord,
    Feature,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from barnabas.metadata.replay import replay_all
from barnabas.metadata.versions import level, loses_metadata
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.schema import Message

METADATA, ELR, GROUPS = "metadata.version", "eligible.leader.replicas.version", "group.version"


def image_of(**levels: int) -> ClusterImage:
    return replay_all(
        ClusterImage(),
        (
            FeatureLevelRecord(name=name.replace("_", "."), feature_level=each)
            for name, each in levels.items()
        ),
    )


def update(
    image: ClusterImage,
    *updates: tuple[str, int],
    kind: int = 1,
    kraft_version: int = 0,
    validate: bool = False,
) -> tuple[list[Message], FeaturesUpdated]:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=number, upgrade_type=kind)
            for name, number in updates
        ],
        validate_only=validate,
    )
    records, response = update_features(
        image, request, node_id=1, kraft_version=kraft_version, min_insync_replicas=2
    )
    return records, response


def config(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=4, resource_name=broker, name="min.insync.replicas", value=value)


def test_eligible_leader_replicas_begin_with_one_value_for_all() -> None:
    image = image_of(metadata_version=30)
    image = replay_all(image, [config("1", "3")])
    records, _ = update(image, (ELR, 1))
    assert records == [FeatureLevelRecord(name=ELR, feature_level=1), config("", "2"), config("1", None)]
    image = replay_all(image, records)
    assert update(image, (ELR, 1))[0] == [FeatureLevelRecord(name=ELR, feature_level=1)]


def test_levels_that_nothing_here_serves_stay_as_they_are() -> None:
    image = image_of(metadata_version=30, group_version=1)
    # as `kafka-features.sh upgrade --release-version 4.3` asks
    records, updated = update(image, (METADATA, 30), (GROUPS, 1))
    assert records == [FeatureLevelRecord(name=METADATA, feature_level=30)]
    assert updated.response.error_code == 0
    for wanted, kind in ((2, 1), (0, 2)):
        records, updated = update(image, (GROUPS, wanted), kind=kind)
        assert (records, updated.response.error_code) == ([], 95)
    assert update(image_of(metadata_version=30), (GROUPS, 1))[1].response.error_code == 95


def test_the_quorums_own_level_is_no_record() -> None:
    image = image_of(metadata_version=30)
    assert update(image, ("kraft.version", 1)) == ([], update(image, ("kraft.version", 1))[1])
    assert update(image, ("kraft.version", 1))[1].kraft_version == 1
    assert update(image, ("kraft.version", 1), validate=True)[1].kraft_version == 0
    assert update(image, ("kraft.version", 1), ("nope", 1))[1].kraft_version == 0


def test_a_level_that_voters_may_not_know_refuses_all_of_a_request() -> None:
    image = image_of(metadata_version=29)
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=1)
        for name, level in (("metadata.version", 30), ("kraft.version", 1))
    ]
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=False)
    records, updated = update_features(
        image, request, node_id=1, kraft_version=0, kraft_version_problem=lambda version: f"not yet {version}"
    )
    assert (records, updated.kraft_version) == ([], 0)
    assert updated.response.error_code == 95
    assert (updated.response.error_message or "").endswith("the following feature had an error: not yet 1")


@pytest.mark.parametrize(
    ("old", "new", "loses"), [(30, 29, True), (29, 23, False), (23, 22, True), (22, 17, False)]
)
def test_going_back_loses_what_came_in_between(old: int, new: int, loses: bool) -> None:
    assert loses_metadata(old, new) is loses


def test_levels_have_names() -> None:
    named = {number: found.release for number in range(40) if (found := level(number)) is not None}
    assert (named[7], named[21], named[30], len(named)) == ("3.3-IV3", "3.9-IV0", "4.3-IV0", 24)


# ---- with other nodes ------------------------------------------------------------------------------------


def with_broker(image: ClusterImage, **ranges: tuple[int, int]) -> ClusterImage:
    features = [_feature(name, each) for name, each in ranges.items()]
    record = RegisterBrokerRecord(
        broker_id=7, incarnation_id=b"b" * 16, broker_epoch=1, end_points=[], features=features
    )
    return replay_all(image, [record])


def with_controller(image: ClusterImage, controller_id: int, **ranges: tuple[int, int]) -> ClusterImage:
    features = [_feature(name, each) for name, each in ranges.items()]
    record = RegisterControllerRecord(
        controller_id=controller_id, incarnation_id=b"c" * 16, end_points=[], features=features
    )
    return replay_all(image, [record])


def _feature(name: str, supported: tuple[int, int]) -> Feature:
    low, high = supported
    return Feature(name=name.replace("_", "."), min_supported_version=low, max_supported_version=high)


def reason(image: ClusterImage, *updates: tuple[str, int], voters: Sequence[int] = ()) -> str:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=number, upgrade_type=1)
            for name, number in updates
        ],
        validate_only=False,
    )
    decision = update_features(image, request, node_id=1, kraft_version=0, voters=voters)
    assert bool(decision.records) == (decision.response.response.error_code == 0)
    told = decision.response.response.error_message
    return "" if told is None else told.rpartition(f"for feature {updates[0][0]}. ")[2]


def test_a_level_that_a_node_does_not_support_is_refused() -> None:
    image = image_of(metadata_version=29)
    both = {"metadata_version": (7, 30), "eligible_leader_replicas_version": (0, 1)}
    assert reason(with_broker(image, **both), (METADATA, 30)) == ""
    older = with_broker(image, metadata_version=(7, 29))
    assert reason(older, (METADATA, 30)) == "Broker 7 only supports versions 7-29"
    assert reason(older, (ELR, 1)) == "Broker 7 does not support this feature."
    only = with_controller(image, 2, metadata_version=(29, 29))
    assert reason(only, (METADATA, 30)) == "Controller 2 only supports versions 29"
    # of the controller that decides, what it registered with long ago does not count
    assert reason(with_controller(image, 1, metadata_version=(7, 29)), (METADATA, 30)) == ""


def test_voters_that_have_not_registered_may_not_support_it() -> None:
    image = image_of(metadata_version=29)
    unknown = "controller 3 has not registered, and may not support this feature"
    assert reason(image, (METADATA, 30), voters=(1, 3)) == unknown
    assert reason(image, (METADATA, 30), voters=(1,)) == ""
    known = with_controller(image, 3, metadata_version=(7, 30))
    assert reason(known, (METADATA, 30), voters=(1, 3)) == ""
    # metadata of this version knows nothing of controllers
    assert reason(image_of(metadata_version=14), (METADATA, 30), voters=(1, 3)) == ""
