"""Partitions that move: at once where nobody comes, step by step where somebody does, and back."""

from __future__ import annotations

from barnabas.controller.decisions import Decision
from barnabas.controller.reassignments import alter_reassignments, list_reassignments
from barnabas.core.errors import WIRE_ERRORS
from barnabas.metadata.parts import PartitionImage
from barnabas.metadata.records import PartitionChangeRecord
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.controller.clusters import Cluster, topic


def ask(
    cluster: Cluster, *targets: list[int] | None, may_change_factor: bool = True
) -> Decision[AlterPartitionReassignmentsResponse]:
    """Targets for the partition 0 of t, one after another."""
    partitions = [ReassignablePartition(partition_index=0, replicas=target) for target in targets]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=1,
        allow_replication_factor_change=may_change_factor,
        topics=[ReassignableTopic(name="t", partitions=partitions)],
    )
    return alter_reassignments(cluster.image, request)


def moved(cluster: Cluster, target: list[int] | None) -> str:
    response = cluster.carry_out(ask(cluster, target))
    return WIRE_ERRORS[response.responses[0].partitions[0].error_code].name


def ongoing(cluster: Cluster, *indexes: int) -> list[tuple[str, list[int], list[int], list[int]]]:
    topics = [ListPartitionReassignmentsTopics(name="t", partition_indexes=list(indexes))]
    request = ListPartitionReassignmentsRequest(timeout_ms=1, topics=topics if indexes else None)
    response = list_reassignments(cluster.image, request)
    return [
        (each.name, one.replicas, one.adding_replicas, one.removing_replicas)
        for each in response.topics
        for one in each.partitions
    ]


def cluster_of_four(*replicas: int) -> Cluster:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create(topic("t", assigned={0: list(replicas)}))
    return cluster


def directory_of(broker_id: int) -> bytes:
    return bytes([100 + broker_id]) * 16


def check_directories(partition: PartitionImage) -> None:
    assert partition.directories == tuple(directory_of(each) for each in partition.replicas)


def test_the_same_replicas_are_no_move() -> None:
    cluster = cluster_of_four(1, 2)
    assert ask(cluster, [1, 2]).records == []
    assert moved(cluster, [1, 2]) == "NONE"


def test_another_order_is_another_preferred_leader_and_takes_effect_at_once() -> None:
    cluster = cluster_of_four(1, 2)
    assert moved(cluster, [2, 1]) == "NONE"
    partition = cluster.partition("t")
    assert (partition.replicas, partition.leader) == ((2, 1), 1)
    check_directories(partition)
    assert ongoing(cluster) == []


def test_where_nobody_comes_those_who_go_are_gone_at_once() -> None:
    cluster = cluster_of_four(1, 2, 3)
    assert moved(cluster, [2, 3]) == "NONE"
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.elr) == ((2, 3), (2, 3), ())
    assert (partition.leader, partition.leader_epoch) == (2, 1)
    assert (partition.adding_replicas, partition.removing_replicas) == ((), ())
    check_directories(partition)


def test_a_move_waits_for_those_who_come() -> None:
    cluster = cluster_of_four(1, 2)
    assert moved(cluster, [3, 1]) == "NONE"
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((3, 1, 2), (1, 2), 1)
    check_directories(partition)
    assert ongoing(cluster) == ongoing(cluster, 0) == [("t", [3, 1, 2], [3], [2])]
    assert ongoing(cluster, 7) == []


def test_a_move_is_cancelled_and_all_is_as_it_was() -> None:
    cluster = cluster_of_four(1, 2)
    before = cluster.partition("t")
    assert moved(cluster, None) == "NO_REASSIGNMENT_IN_PROGRESS"
    moved(cluster, [1, 3, 4])
    assert moved(cluster, None) == "NONE"
    after = cluster.partition("t")
    # replicas have left: a new leader epoch
    assert after.leader_epoch == before.leader_epoch + 1
    assert after._replace(partition_epoch=before.partition_epoch, leader_epoch=before.leader_epoch) == before
    assert ongoing(cluster) == []


def test_a_move_gets_another_target() -> None:
    cluster = cluster_of_four(1, 2)
    moved(cluster, [3, 4])
    assert moved(cluster, [4, 1]) == "NONE"
    assert ongoing(cluster) == [("t", [4, 1, 3, 2], [4], [3, 2])]


def test_a_move_is_not_cancelled_where_only_those_who_came_are_in_sync() -> None:
    cluster = cluster_of_four(1)
    moved(cluster, [2])
    found = cluster.image.topics_by_name["t"]
    cluster.append([PartitionChangeRecord(partition_id=0, topic_id=found.id, isr=[2], leader=2)])
    before = cluster.partition("t")
    assert moved(cluster, None) == "INVALID_REPLICA_ASSIGNMENT"
    assert cluster.partition("t") == before


def test_what_cannot_be_is_refused() -> None:
    cluster = cluster_of_four(1, 2)
    for target in ([], [9], [1, 1], [1, 9]):
        assert moved(cluster, target) == "INVALID_REPLICA_ASSIGNMENT"
    refused = ask(cluster, [1], may_change_factor=False)
    assert refused.records == []
    (result,) = refused.response.responses[0].partitions
    assert (WIRE_ERRORS[result.error_code].name, result.error_message) == (
        "INVALID_REPLICATION_FACTOR",
        "The replication factor is changed from 2 to 1",
    )


def test_of_a_partition_named_twice_the_first_that_can_be_moved_is() -> None:
    cluster = cluster_of_four(1, 2)
    cluster.carry_out(ask(cluster, [9], [2, 1], [1]))
    assert cluster.partition("t").replicas == (2, 1)
