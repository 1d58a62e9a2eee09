"""Topics: which can be created and deleted, what they get, and with which errors the others are refused."""

from __future__ import annotations

import pytest

from barnabas.controller.topics import TopicPolicy, create_topics, delete_topics, new_topic_id
from barnabas.core.errors import WIRE_ERRORS
from barnabas.core.random import SeededRandom
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.describe import describe_topic
from barnabas.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicResult
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.schema import NO_UUID
from tests.controller.clusters import POLICY, Cluster, creation, deletion, topic
from tests.support.images import to_records


def error(result: object) -> str:
    code = result.error_code  # type: ignore[attr-defined]
    return WIRE_ERRORS[code].name


def asked(cluster: Cluster, *topics: CreatableTopic) -> dict[str, str]:
    return {result.name: error(result) for result in cluster.create(*topics)}


def test_a_topic_is_told_with_its_settings_and_partitions() -> None:
    cluster = Cluster(1)
    configs: dict[str, str | None] = {"retention.ms": "5", "cleanup.policy": "compact"}
    request = creation(topic("t", 2, 1, configs=configs))
    decision = create_topics(cluster.image, request, cluster.random, POLICY)
    told, *rest = decision.records
    assert isinstance(told, TopicRecord)
    assert [(r.name, r.value) for r in rest if isinstance(r, ConfigRecord)] == [
        ("cleanup.policy", "compact"),
        ("retention.ms", "5"),
    ]
    partitions = [r for r in rest if isinstance(r, PartitionRecord)]
    assert [(p.partition_id, p.leader, p.isr, p.leader_epoch, p.partition_epoch) for p in partitions] == [
        (0, 1, [1], 0, 0),
        (1, 1, [1], 0, 0),
    ]
    assert partitions[0].directories == [bytes([101]) * 16]
    (result,) = decision.response.topics
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)
    assert result.topic_id == told.topic_id != NO_UUID


def test_deciding_changes_nothing() -> None:
    cluster = Cluster(1)
    before = to_records(cluster.image)
    create_topics(cluster.image, creation(topic("t")), cluster.random, POLICY)
    assert to_records(cluster.image) == before


def test_minus_one_means_the_default() -> None:
    cluster = Cluster(1)
    (result,) = cluster.create(topic("t"))
    assert (result.num_partitions, result.replication_factor) == (POLICY.num_partitions, 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "INVALID_TOPIC_EXCEPTION"),
        (".", "INVALID_TOPIC_EXCEPTION"),
        ("..", "INVALID_TOPIC_EXCEPTION"),
        ("x" * 250, "INVALID_TOPIC_EXCEPTION"),
        ("ä", "INVALID_TOPIC_EXCEPTION"),
        ("a b", "INVALID_TOPIC_EXCEPTION"),
        ("a/b", "INVALID_TOPIC_EXCEPTION"),
        ("__cluster_metadata", "INVALID_REQUEST"),
        ("x" * 249, "NONE"),
        ("...", "NONE"),
        ("A-z_0.9", "NONE"),
        ("__consumer_offsets", "NONE"),
        ("__transaction_state", "NONE"),
    ],
)
def test_names(name: str, expected: str) -> None:
    cluster = Cluster(1)
    assert asked(cluster, topic(name)) == {name: expected}
    assert (name in cluster.image.topics_by_name) == (expected == "NONE")


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    cluster = Cluster(1)
    assert asked(cluster, topic("a.b")) == {"a.b": "NONE"}
    assert asked(cluster, topic("a_b"), topic("a-b"), topic("a.b")) == {
        "a_b": "INVALID_TOPIC_EXCEPTION",
        "a-b": "NONE",
        "a.b": "TOPIC_ALREADY_EXISTS",
    }
    assert asked(cluster, topic("c.d"), topic("c_d")) == {"c.d": "NONE", "c_d": "INVALID_TOPIC_EXCEPTION"}
    cluster.delete("a.b")
    assert asked(cluster, topic("a_b")) == {"a_b": "NONE"}


def test_a_topic_named_twice_is_refused_once() -> None:
    cluster = Cluster(1)
    results = cluster.create(topic("twice"), topic("once"), topic("twice"))
    assert [(result.name, error(result)) for result in results] == [
        ("twice", "INVALID_REQUEST"),
        ("once", "NONE"),
    ]
    assert list(cluster.image.topics_by_name) == ["once"]


@pytest.mark.parametrize(
    ("asked_for", "expected"),
    [
        (topic("t", 0, 1), "INVALID_PARTITIONS"),
        (topic("t", -2, 1), "INVALID_PARTITIONS"),
        (topic("t", 1, 0), "INVALID_REPLICATION_FACTOR"),
        (topic("t", 1, -2), "INVALID_REPLICATION_FACTOR"),
        (topic("t", 1, 3), "INVALID_REPLICATION_FACTOR"),
        (topic("t", 10_001, 1), "POLICY_VIOLATION"),
        (topic("t", 1, 2), "NONE"),
        (topic("t", assigned={0: [1, 2], 1: [2, 1]}), "NONE"),
        (topic("t", 2, assigned={0: [1], 1: [2]}), "INVALID_REQUEST"),
        (topic("t", -1, 1, assigned={0: [1]}), "INVALID_REQUEST"),
        (topic("t", assigned={0: [3]}), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("t", assigned={0: [-1]}), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("t", assigned={0: [1, 1]}), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("t", assigned={0: []}), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("t", assigned={1: [1]}), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("t", assigned={0: [1], 2: [1]}), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("t", assigned={0: [1], 1: [1, 2]}), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("t", configs={"retention.ms": "1"}), "NONE"),
        (topic("t", configs={"no.such.setting": "1"}), "INVALID_CONFIG"),
        (topic("t", configs={"retention.ms": "soon"}), "INVALID_CONFIG"),
        (topic("t", configs={"retention.ms": None}), "INVALID_CONFIG"),
    ],
)
def test_what_can_be_asked_for(asked_for: CreatableTopic, expected: str) -> None:
    cluster = Cluster(1, 2)
    (result,) = cluster.create(asked_for)
    assert error(result) == expected
    assert ("t" in cluster.image.topics_by_name) == (expected == "NONE")
    if expected != "NONE":
        assert result.error_message
        assert (result.topic_id, result.num_partitions, result.configs) == (NO_UUID, -1, [])


def test_an_assignment_to_one_partition_twice_is_refused() -> None:
    asked_for = topic("t", assigned={0: [1]})
    asked_for.assignments = asked_for.assignments * 2
    assert asked(Cluster(1), asked_for) == {"t": "INVALID_REPLICA_ASSIGNMENT"}


def test_assigned_replicas_are_taken_as_they_are() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(topic("t", assigned={1: [3, 1], 0: [2, 3]}))
    assert [cluster.partition("t", index).replicas for index in (0, 1)] == [(2, 3), (3, 1)]


def test_too_many_partitions_are_counted_over_the_request() -> None:
    cluster = Cluster(1)
    many = asked(cluster, topic("a", 5_000), topic("b", 5_000), topic("c", 1))
    assert many == dict.fromkeys("abc", "POLICY_VIOLATION")
    assert asked(cluster, topic("a", 5_000), topic("b", 5_000)) == dict.fromkeys("ab", "NONE")


def test_validating_answers_the_same_and_tells_nothing() -> None:
    cluster = Cluster(1)
    request = creation(topic("t", 3, 1), topic("bad", 0, 1), validate_only=True)
    decision = create_topics(cluster.image, request, cluster.random, POLICY)
    assert decision.records == []
    good, bad = decision.response.topics
    assert (error(good), good.num_partitions) == ("NONE", 3)
    assert error(bad) == "INVALID_PARTITIONS"


def test_settings_are_described_with_who_decided_them() -> None:
    settings = BrokerSettings({})
    policy = TopicPolicy(describe=lambda overrides: describe_topic(overrides, settings))
    request = creation(topic("t", configs={"retention.ms": "5"}))
    (result,) = create_topics(Cluster(1).image, request, SeededRandom(1), policy).response.topics
    assert isinstance(result, CreatableTopicResult)
    described = {each.name: (each.value, each.config_source) for each in result.configs or ()}
    assert described["retention.ms"] == ("5", 1)
    assert described["segment.bytes"] == ("1073741824", 5)


def test_fenced_brokers_hold_replicas_but_are_not_in_sync() -> None:
    cluster = Cluster(1, 2)
    cluster.beat(2, want_fence=True)
    cluster.create(topic("t", 2, 2))
    for index in (0, 1):
        partition = cluster.partition("t", index)
        assert (partition.replicas, partition.isr, partition.leader) == ((1, 2), (1,), 1)
    assert asked(cluster, topic("u", assigned={0: [2]})) == {"u": "INVALID_REPLICA_ASSIGNMENT"}
    cluster.beat(1, want_fence=True)
    assert asked(cluster, topic("u")) == {"u": "INVALID_REPLICATION_FACTOR"}


def test_ids_do_not_look_like_options() -> None:
    class Dashes(SeededRandom):
        drawn = 0

        def bytes(self, count: int) -> bytes:
            self.drawn += 1
            return bytes([0xF8 if self.drawn < 3 else 0x10]) * count

    random = Dashes(1)
    assert new_topic_id(random)[0] == 0x10
    assert random.drawn == 3


def test_topics_are_deleted_by_name_and_by_id() -> None:
    cluster = Cluster(1)
    first, second = cluster.create(topic("first"), topic("second"))
    decision = delete_topics(cluster.image, deletion("first", second.topic_id))
    assert decision.records == [
        RemoveTopicRecord(topic_id=first.topic_id),
        RemoveTopicRecord(topic_id=second.topic_id),
    ]
    assert [(r.name, r.topic_id, r.error_code) for r in decision.response.responses] == [
        ("first", first.topic_id, 0),
        ("second", second.topic_id, 0),
    ]
    cluster.carry_out(decision)
    assert len(cluster.image.topics_by_name) == 0


def test_what_cannot_be_deleted() -> None:
    cluster = Cluster(1)
    (made,) = cluster.create(topic("there"))
    assert [error(r) for r in cluster.delete("missing", b"x" * 16, "__cluster_metadata", "")] == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    states = [
        DeleteTopicState(name=None, topic_id=NO_UUID),
        DeleteTopicState(name="there", topic_id=made.topic_id),
    ]
    decision = delete_topics(cluster.image, deletion(states=states))
    assert decision.records == []
    assert [error(r) for r in decision.response.responses] == ["INVALID_REQUEST"] * 2


def test_a_topic_is_not_deleted_twice_in_one_request() -> None:
    cluster = Cluster(1)
    (made,) = cluster.create(topic("t"))
    for twice in (("t", "t"), (made.topic_id, made.topic_id), ("t", made.topic_id)):
        assert [error(r) for r in cluster.delete(*twice)] == ["INVALID_REQUEST"]
    assert [error(r) for r in cluster.delete("t")] == ["NONE"]


def test_old_versions_name_topics_in_a_list_of_their_own() -> None:
    cluster = Cluster(1)
    cluster.create(topic("t"))
    request = DeleteTopicsRequest(topics=[], topic_names=["t", "missing"], timeout_ms=1)
    results = cluster.carry_out(delete_topics(cluster.image, request)).responses
    assert [error(r) for r in results] == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
