"""Elections that a controller begins by itself: preferred leaders, and partitions without a leader."""

from __future__ import annotations

import pytest

from barnabas.controller import leader_upkeep
from barnabas.controller.elections import ElectionDefaults
from barnabas.controller.leader_upkeep import has_leaderless, lead_leaderless, not_preferred, prefer
from barnabas.metadata.parts import RECOVERING
from barnabas.metadata.records import PartitionChangeRecord
from tests.controller.clusters import Cluster, topic
from tests.controller.test_leaders import NO_LEADER, come_back

DEFAULTS = ElectionDefaults()


def found(cluster: Cluster, name: str = "t") -> list[int]:
    """The partitions of a topic whose preferred replica could lead, and does not."""
    return [index for _, index in not_preferred(cluster.image, cluster.image.topics_by_name[name])]


def rebalance(cluster: Cluster, name: str = "t") -> int:
    image = cluster.image
    return cluster.carry_out(prefer(image, [*not_preferred(image, image.topics_by_name[name])], DEFAULTS))


def test_preferred_replicas_that_are_in_sync_again_lead_again() -> None:
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1, 2], 1: [2, 1], 2: [1, 2]}))
    assert found(cluster) == []
    come_back(cluster, 1, "t")
    assert found(cluster) == [0, 2]
    assert rebalance(cluster) == 2
    assert [cluster.partition("t", index).leader for index in range(3)] == [1, 2, 1]
    assert rebalance(cluster) == 0


def test_preferred_replicas_that_are_not_in_sync_or_not_there_do_not_lead() -> None:
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1, 2]}))
    epoch = cluster.stop(1)
    assert found(cluster) == []
    cluster.start(1, incarnation=9, previous_epoch=epoch)
    assert found(cluster) == []  # it has to catch up first
    assert rebalance(cluster) == 0


def test_what_has_changed_since_it_was_found_is_left_alone() -> None:
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1, 2], 1: [1, 2]}))
    come_back(cluster, 1, "t")
    image = cluster.image
    candidates = [
        *not_preferred(image, image.topics_by_name["t"]),
        (bytes(16), 0),
        (image.topics_by_name["t"].id, 7),
    ]
    cluster.append([PartitionChangeRecord(partition_id=0, topic_id=candidates[0][0], leader=1)])
    decision = prefer(cluster.image, candidates, DEFAULTS)
    assert (decision.response, len(decision.records)) == (1, 1)
    cluster.stop(1)
    assert prefer(cluster.image, candidates, DEFAULTS).records == []


def leaderless() -> Cluster:
    """Two partitions whose only member of the ISR is gone; another replica is there."""
    cluster = Cluster(1, 2)
    cluster.create(topic("t", assigned={0: [1, 2], 1: [1, 2]}))
    epoch = cluster.stop(2)
    cluster.stop(1)
    cluster.start(2, incarnation=9, previous_epoch=epoch)
    assert [cluster.partition("t", index).leader for index in (0, 1)] == [NO_LEADER, NO_LEADER]
    return cluster


def test_leaderless_partitions_are_led_once_their_topic_allows_any_replica() -> None:
    cluster = leaderless()
    assert has_leaderless(cluster.image)
    assert lead_leaderless(cluster.image, DEFAULTS).records == []
    allowed = DEFAULTS._replace(unclean_election=True)
    waiting = allowed._replace(waiting_for=frozenset({1}))
    assert lead_leaderless(cluster.image, waiting).records == []
    assert cluster.carry_out(lead_leaderless(cluster.image, allowed)) == 2
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), RECOVERING)
    assert not has_leaderless(cluster.image)


def test_a_decision_is_about_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_upkeep, "MAX_ELECTIONS", 1)
    cluster, allowed = leaderless(), DEFAULTS._replace(unclean_election=True)
    assert cluster.carry_out(lead_leaderless(cluster.image, allowed)) == 1
    assert cluster.carry_out(lead_leaderless(cluster.image, allowed)) == 1
    assert lead_leaderless(cluster.image, allowed).response == 0
