"""Elections that are asked for: the preferred replica leads if it may, anyone where nobody else will."""

from __future__ import annotations

from barnabas.controller.decisions import Decision
from barnabas.controller.leaders import PREFERRED, UNCLEAN, elect_leaders
from barnabas.core.errors import WIRE_ERRORS
from barnabas.metadata.parts import RECOVERING
from barnabas.metadata.records import PartitionChangeRecord
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tests.controller.clusters import Cluster, topic

NO_LEADER = -1


def ask(
    cluster: Cluster, *partitions: tuple[str, int], election_type: int = PREFERRED, everything: bool = False
) -> Decision[ElectLeadersResponse]:
    asked = [TopicPartitions(topic=name, partitions=[index]) for name, index in partitions]
    request = ElectLeadersRequest(
        election_type=election_type, topic_partitions=None if everything else asked, timeout_ms=1
    )
    return elect_leaders(cluster.image, request)


def results(response: ElectLeadersResponse) -> dict[tuple[str, int], str]:
    return {
        (topic.topic, one.partition_id): WIRE_ERRORS[one.error_code].name
        for topic in response.replica_election_results
        for one in topic.partition_result
    }


def come_back(cluster: Cluster, broker_id: int, name: str) -> None:
    """A broker is started again, and its replicas are in sync again."""
    epoch = cluster.stop(broker_id)
    cluster.start(broker_id, incarnation=9, previous_epoch=epoch)
    found = cluster.image.topics_by_name[name]
    cluster.append(
        PartitionChangeRecord(partition_id=index, topic_id=found.id, isr=[*partition.isr, broker_id])
        for index, partition in enumerate(found.partitions)
        if broker_id in partition.replicas and broker_id not in partition.isr
    )


def test_the_preferred_replica_takes_the_lead_back() -> None:
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1, 2], 1: [2, 1]}))
    come_back(cluster, 1, "t")
    assert [cluster.partition("t", index).leader for index in (0, 1)] == [2, 2]
    epoch = cluster.partition("t").leader_epoch
    asked = ask(cluster, ("t", 0), ("t", 1), ("t", 2), ("nope", 0))
    assert results(cluster.carry_out(asked)) == {
        ("t", 0): "NONE",
        ("t", 1): "ELECTION_NOT_NEEDED",
        ("t", 2): "UNKNOWN_TOPIC_OR_PARTITION",
        ("nope", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert (cluster.partition("t").leader, cluster.partition("t").leader_epoch) == (1, epoch + 1)


def test_all_partitions_are_answered_only_where_an_election_was_needed() -> None:
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1, 2], 1: [2, 1]}), topic("u", assigned={0: [2]}))
    come_back(cluster, 1, "t")
    response = cluster.carry_out(ask(cluster, everything=True))
    assert results(response) == {("t", 0): "NONE"}
    assert [each.topic for each in response.replica_election_results] == ["t", "u"]


def test_a_preferred_replica_that_is_not_in_sync_or_not_there_does_not_lead() -> None:
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1, 2]}))
    epoch = cluster.stop(1)
    assert results(ask(cluster, ("t", 0)).response) == {("t", 0): "PREFERRED_LEADER_NOT_AVAILABLE"}
    cluster.start(1, incarnation=9, previous_epoch=epoch)
    asked = ask(cluster, ("t", 0))
    assert results(asked.response) == {("t", 0): "PREFERRED_LEADER_NOT_AVAILABLE"}
    assert asked.records == []


def test_a_preferred_replica_that_is_only_eligible_does_not_take_the_lead_from_one_in_sync() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create(topic("t", assigned={0: [1, 2, 3]}, configs={"min.insync.replicas": "2"}))
    cluster.beat(3, want_fence=True)
    cluster.beat(1, want_fence=True)
    cluster.beat(1)
    before = cluster.partition("t")
    assert (before.leader, before.isr, before.elr) == (2, (2,), (1,))
    asked = ask(cluster, ("t", 0))
    assert results(asked.response) == {("t", 0): "PREFERRED_LEADER_NOT_AVAILABLE"}
    assert asked.records == []


def test_an_unclean_election_is_only_for_those_whom_nobody_leads() -> None:
    cluster = Cluster(1, 2, has_elr=False)
    cluster.create(topic("t", assigned={0: [1, 2], 1: [2, 1]}))
    cluster.beat(2, want_fence=True)
    cluster.beat(1, want_fence=True)
    assert results(ask(cluster, ("t", 0), election_type=UNCLEAN).response) == {
        ("t", 0): "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    }
    assert not cluster.beat(2).is_fenced  # it was not in sync when the other one went
    assert cluster.partition("t").leader == NO_LEADER
    asked = ask(cluster, ("t", 0), ("t", 1), election_type=UNCLEAN)
    assert results(cluster.carry_out(asked)) == {("t", 0): "NONE", ("t", 1): "NONE"}
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), RECOVERING)
    again = ask(cluster, ("t", 0), election_type=UNCLEAN)
    assert results(again.response) == {("t", 0): "ELECTION_NOT_NEEDED"}


def test_an_unknown_kind_of_election_is_refused_everywhere() -> None:
    cluster = Cluster(1)
    cluster.create(topic("t", 1, 1))
    decision = ask(cluster, ("t", 0), election_type=7)
    assert decision.response.error_code == 42
    assert results(decision.response) == {("t", 0): "INVALID_REQUEST"}
