"""Deltas: what they say differs between two images, and images that stay as they were."""

from __future__ import annotations

import pytest

from barnabas.core.errors import InvariantViolation
from barnabas.metadata import records as r
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import TOPIC_RESOURCE, ClusterImage
from barnabas.metadata.replay import difference
from barnabas.protocol.schema import Message
from tests.metadata.test_image import ID, OTHER, TOPIC, broker, partition
from tests.support.images import image_of, replayed

SETTING = r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="retention.ms", value="1")
AGAIN = r.TopicRecord(name="t", topic_id=OTHER)
BASE = image_of(TOPIC, partition(0), partition(1), SETTING, broker(1), broker(2))


def delta_of(*records: Message, base: ClusterImage = BASE) -> tuple[Delta, ClusterImage]:
    delta = Delta(base)
    for record in records:
        delta.replay(record)
    return delta, delta.apply(9, 3)


def test_an_image_stands_where_it_was_applied_and_the_base_stays() -> None:
    before = BASE._replace()
    delta, image = delta_of(r.PartitionChangeRecord(partition_id=1, topic_id=ID, leader=2))
    assert (image.offset, image.epoch) == (9, 3)
    assert delta.base is BASE
    assert before == BASE
    assert BASE.topics_by_id[ID].partitions[1].leader == 1
    assert image.topics_by_id[ID].partitions[1].leader == 2
    assert image.topics_by_id[ID].partitions[0] is BASE.topics_by_id[ID].partitions[0]
    assert (list(delta.changed_topics), list(delta.changed_partitions)) == ([ID], [(ID, 1)])


def test_the_index_by_broker_follows_leaders_and_replicas() -> None:
    _, image = delta_of(
        r.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=-1),
        r.PartitionChangeRecord(partition_id=1, topic_id=ID, leader=2, replicas=[2, 3], isr=[2]),
    )
    assert [(topic.name, index) for topic, index, _ in image.partitions_assigned(1)] == [("t", 0)]
    assert [(topic.name, index) for topic, index, _ in image.partitions_assigned(3)] == [("t", 1)]
    assert [(topic.name, index) for topic, index, _ in image.partitions_led(-1)] == [("t", 0)]
    assert (image.leads_any(1), image.leads_any(2)) == (False, True)
    _, emptied = delta_of(r.RemoveTopicRecord(topic_id=ID), base=image)
    assert (emptied.assigned, emptied.led) == ({}, {})


def test_a_topic_removed_and_made_again_is_both() -> None:
    delta, image = delta_of(r.RemoveTopicRecord(topic_id=ID), AGAIN, partition(topic_id=OTHER))
    assert list(delta.removed_topics) == [ID]
    assert list(delta.changed_topics) == [OTHER]
    assert image.topics_by_name["t"].id == OTHER
    assert image.topic_config("t") == {}
    assert list(delta.changed_configs) == [(TOPIC_RESOURCE, "t")]


def test_a_topic_made_and_removed_at_once_was_never_there() -> None:
    delta, image = delta_of(
        r.RemoveTopicRecord(topic_id=ID),
        AGAIN,
        partition(topic_id=OTHER),
        r.RemoveTopicRecord(topic_id=OTHER),
    )
    assert list(delta.removed_topics) == [ID]
    assert (delta.changed_topics, delta.changed_partitions) == ({}, {})
    assert len(image.topics_by_id) == len(image.topics_by_name) == 0


def test_partitions_may_come_in_any_order_but_without_a_gap() -> None:
    _, image = delta_of(partition(3), partition(2))
    assert len(image.topics_by_id[ID].partitions) == 4
    with pytest.raises(InvariantViolation, match="t-3, but there is no t-2"):
        delta_of(partition(3))


def test_names_that_collide_are_known_until_their_topic_goes() -> None:
    _, image = delta_of(r.TopicRecord(name="a.b", topic_id=OTHER))
    assert dict(image.folded_names.items()) == {"a_b": "a.b"}
    _, image = delta_of(r.RemoveTopicRecord(topic_id=OTHER), base=image)
    assert len(image.folded_names) == 0


def test_a_snapshot_differs_by_what_it_has_and_by_what_it_lacks() -> None:
    other = image_of(AGAIN, partition(0, topic_id=OTHER), broker(1, epoch=7), broker(3))
    delta = difference(BASE, other)
    assert list(delta.removed_topics) == [ID]
    assert (list(delta.changed_topics), list(delta.changed_partitions)) == ([OTHER], [(OTHER, 0)])
    assert sorted(delta.changed_brokers) == [1, 2, 3]
    assert list(delta.changed_configs) == [(TOPIC_RESOURCE, "t")]
    assert not delta.is_empty


def test_a_snapshot_of_the_same_changes_nothing() -> None:
    delta = difference(BASE, BASE)
    assert delta.is_empty
    assert (delta.changed_topics, delta.changed_brokers, delta.changed_configs) == ({}, {}, {})


def test_a_snapshot_with_one_partition_changed_names_that_one() -> None:
    changed = replayed(BASE, r.PartitionChangeRecord(partition_id=1, topic_id=ID, isr=[2]))
    delta = difference(BASE, changed)
    assert list(delta.changed_partitions) == [(ID, 1)]
    assert (delta.removed_topics, delta.changed_brokers, delta.changed_configs) == ({}, {}, {})
