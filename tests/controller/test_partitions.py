"""More partitions: numbered on, placed as the others are, or refused with nothing told."""

from __future__ import annotations

from barnabas.controller.decisions import Decision
from barnabas.controller.partitions import create_partitions
from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tests.controller.clusters import Cluster, topic


def ask(
    cluster: Cluster, name: str, count: int, assigned: list[list[int]] | None = None, **options: bool
) -> Decision[CreatePartitionsResponse]:
    wanted = CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assigned is None
        else [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned],
    )
    request = CreatePartitionsRequest(
        topics=[wanted], timeout_ms=1000, validate_only=options.get("validate_only", False)
    )
    return create_partitions(cluster.image, request, cluster.random)


def errors(response: CreatePartitionsResponse) -> list[str]:
    return [WIRE_ERRORS[result.error_code].name for result in response.results]


def test_new_partitions_have_as_many_replicas_as_the_first_and_are_led() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(topic("t", 2, 2))
    assert errors(cluster.carry_out(ask(cluster, "t", 5))) == ["NONE"]
    assert len(cluster.image.topics_by_name["t"].partitions) == 5
    for index in (2, 3, 4):
        partition = cluster.partition("t", index)
        assert len(set(partition.replicas)) == 2
        assert partition.isr == partition.replicas
        assert (partition.leader, partition.leader_epoch) == (partition.replicas[0], 0)


def test_replicas_assigned_by_hand_are_taken_and_the_fenced_are_not_in_sync() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(topic("t", 1, 2))
    cluster.beat(2, want_fence=True)
    assert errors(cluster.carry_out(ask(cluster, "t", 3, [[2, 3], [3, 1]]))) == ["NONE"]
    assert (cluster.partition("t", 1).replicas, cluster.partition("t", 1).isr) == ((2, 3), (3,))
    assert cluster.partition("t", 2).leader == 3
    fenced = ask(cluster, "t", 4, [[2, 2]])
    assert errors(fenced.response) == ["INVALID_REPLICA_ASSIGNMENT"]
    other_factor = ask(cluster, "t", 4, [[3]])
    assert other_factor.response.results[0].error_message == (
        "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent "
        "with previous partitions, which have 2 replica(s)."
    )
    cluster.beat(3, want_fence=True)
    assert "are fenced" in str(ask(cluster, "t", 4, [[2, 3]]).response.results[0].error_message)


def test_what_is_refused_or_only_tried_changes_nothing() -> None:
    cluster = Cluster(1)
    cluster.create(topic("t", 2, 1))
    for decision in (
        ask(cluster, "t", 2),
        ask(cluster, "t", 1),
        ask(cluster, "nope", 4),
        ask(cluster, "t", 4, [[1]]),
        ask(cluster, "t", 10_003),
        ask(cluster, "t", 4, validate_only=True),
    ):
        assert decision.records == []
    assert errors(ask(cluster, "t", 10_003).response) == ["POLICY_VIOLATION"]
    assert len(ask(cluster, "t", 10_002).records) == 10_000


def test_topics_of_one_request_share_the_limit_and_a_name_that_stands_twice_is_refused_once() -> None:
    cluster = Cluster(1)
    cluster.create(topic("a", 1, 1), topic("b", 1, 1))

    def both(*wanted: tuple[str, int]) -> Decision[CreatePartitionsResponse]:
        topics = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in wanted]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=1, validate_only=False)
        return create_partitions(cluster.image, request, cluster.random)

    assert errors(both(("a", 9_001), ("b", 1_001)).response) == ["NONE", "NONE"]
    assert errors(both(("a", 9_001), ("b", 1_002)).response) == ["NONE", "POLICY_VIOLATION"]
    twice = both(("a", 3), ("b", 2), ("a", 4))
    assert errors(twice.response) == ["INVALID_REQUEST", "NONE"]
    assert len(twice.records) == 1
