"""What is finalised, where Apache Kafka is not asked: the records, and levels that nothing here serves."""

from __future__ import annotations

import pytest

from barnabas.controller.features import FeaturesUpdated, update_features
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import ConfigRecord, FeatureLevelRecord
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


@pytest.mark.parametrize(
    ("old", "new", "loses"), [(30, 29, True), (29, 23, False), (23, 22, True), (22, 17, False)]
)
def test_going_back_loses_what_came_in_between(old: int, new: int, loses: bool) -> None:
    assert loses_metadata(old, new) is loses


def test_levels_have_names() -> None:
    named = {number: found.release for number in range(40) if (found := level(number)) is not None}
    assert (named[7], named[21], named[30], len(named)) == ("3.3-IV3", "3.9-IV0", "4.3-IV0", 24)
