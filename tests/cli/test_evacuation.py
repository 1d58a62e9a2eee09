"""Where the partitions of a broker go before it leaves, and what speaks against stopping a node."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from barnabas.cli.clusters.evacuation import Evacuation, plan_evacuation
from barnabas.cli.clusters.health import Health
from barnabas.cli.clusters.wholeness import partition_obstacles, voter_obstacles
from barnabas.client.admin import PartitionDescription, QuorumDescription, QuorumReplica, Reassignment
from barnabas.client.metadata import TopicPartition
from barnabas.testing import Cluster
from tests.cli.running import Commands


def partitions(
    *replicas: list[int], leader: int | None = None, move: Reassignment | None = None
) -> list[Health]:
    return [
        Health(
            TopicPartition("t", number),
            PartitionDescription(number, each[0] if leader is None else leader, 0, each, each),
            1,
            move,
        )
        for number, each in enumerate(replicas)
    ]


def leave(
    found: list[Health], racks: dict[int, str | None], leaving: int, *, fewer: bool = False
) -> Evacuation:
    return plan_evacuation(found, racks, leaving, may_have_fewer=fewer)


def replicas_of(plan: Evacuation) -> list[tuple[int, ...]]:
    return [step.replicas for step in plan.steps]


def test_replicas_are_replaced_where_they_stand_evenly() -> None:
    plan = leave(partitions(*[[1, 2]] * 4, [3, 4]), dict.fromkeys((2, 3, 4)), 1)
    assert all(each[1] == 2 for each in replicas_of(plan))
    assert Counter(each[0] for each in replicas_of(plan)) == {3: 2, 4: 2}
    assert plan.stuck == {}


def test_racks_that_a_partition_lacks_come_first() -> None:
    racks: dict[int, str | None] = {2: "a", 3: "a", 4: "b"}
    assert replicas_of(leave(partitions([1, 2]), racks, 1)) == [(4, 2)]


def test_replication_is_kept_or_refused() -> None:
    found = partitions([1, 2, 3], [1], [2, 3])
    plan = leave(found, dict.fromkeys((2, 3)), 1)
    assert replicas_of(plan) == [(2,)]
    assert plan.reasons == {"3 replicas need as many brokers, and 2 would be left": [TopicPartition("t", 0)]}
    assert replicas_of(leave(found, dict.fromkeys((2, 3)), 1, fewer=True)) == [(2, 3), (2,)]


def test_the_only_replica_is_never_given_up() -> None:
    plan = leave(partitions([1]), {}, 1, fewer=True)
    assert plan.steps == []
    assert list(plan.stuck) == [TopicPartition("t", 0)]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (partitions([1], leader=-1), "no broker leads it"),
        (partitions([1, 2], move=Reassignment([1, 2], [2], [])), "it is on its way to other brokers"),
    ],
)
def test_partitions_that_cannot_be_copied_are_stuck(found: list[Health], reason: str) -> None:
    plan = leave(found, dict.fromkeys((2, 3)), 1)
    assert plan.stuck == {TopicPartition("t", 0): reason}


def test_obstacles_name_partitions_and_voters() -> None:
    assert partition_obstacles(partitions([1, 2])) == []
    (offline,) = partition_obstacles(partitions([1, 2], leader=-1))
    assert offline == ("offline", "1 partition without a leader: t-0")
    voters = [QuorumReplica(node, None, end, None, None) for node, end in ((1, 20), (2, 17))]
    (behind,) = voter_obstacles(QuorumDescription(1, 5, 20, voters, [], {}))
    assert behind.what == "controller 2 lacks 3 committed records of the metadata"
    now_ms = 1_000_000
    voters = [QuorumReplica(node, None, 20, now_ms - 4000 * (node == 2), None) for node in (1, 2, 3)]
    (silent,) = voter_obstacles(QuorumDescription(1, 5, 20, voters, [], {}))
    assert silent.what == "controller 2 does not fetch the metadata"
    (nobody,) = voter_obstacles(QuorumDescription(-1, 5, 20, voters, [], {}))
    assert nobody.what == "no controller leads the quorum"


def test_roll_check_waits_for_a_node_that_is_away(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    with Cluster() as cluster:
        run = Commands(cluster.bootstrap, capfdbinary, tmp_path)
        run.ok("topic", "create", "letters", "--partitions", 2)
        run.ok("topic", "create", "alone", "--assign", "2")
        assert b"a node may be stopped" in run.ok("cluster", "roll-check", "--without", 1)
        without = run("cluster", "roll-check", "--without", 2)
        assert without.status == 1
        assert b"1 partition with broker 2 alone would be away: alone-0" in without.out
        cluster.kill(3)
        cluster.wait_until_fenced(3)
        done = run("cluster", "roll-check", "--wait", 0.1, "--without", 1, "--json")
        assert done.status == 1
        told = json.loads(done.out)
        assert not told["whole"]
        kinds = [each["kind"] for each in told["obstacles"]]
        assert {"broker", "isr", "min-isr"} <= set(kinds)
        cluster.restart(3)
        assert json.loads(run.ok("cluster", "roll-check", "--json"))["whole"]
