"""`barnabas cluster grow-internal`: which broker gets which replica, and a cluster that has grown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.cli.clusters.growth import Plan, plan_growth
from barnabas.client.admin import PartitionDescription
from barnabas.client.metadata import TopicPartition as Place
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.testing import Cluster
from tests.cli.running import Commands

# ---- the plan --------------------------------------------------------------------------------------------


def partitions(
    *replicas: list[int], leader: int | None = None, in_sync: list[int] | None = None
) -> dict[Place, PartitionDescription]:
    return {
        Place("t", number): PartitionDescription(
            number, each[0] if leader is None else leader, 0, each, each if in_sync is None else in_sync
        )
        for number, each in enumerate(replicas)
    }


def replicas_of(plan: Plan) -> list[tuple[int, ...]]:
    return [step.replicas for step in plan.steps]


def test_replicas_are_added_behind_those_that_are_there_evenly() -> None:
    plan = plan_growth(partitions(*[[1]] * 6), dict.fromkeys((1, 2, 3, 4)), 3)
    assert all(each[0] == 1 and len(set(each)) == 3 for each in replicas_of(plan))
    counts = Counter(broker for each in replicas_of(plan) for broker in each)
    assert counts == {1: 6, 2: 4, 3: 4, 4: 4}


def test_no_more_replicas_than_brokers() -> None:
    plan = plan_growth(partitions([1], [2, 1]), dict.fromkeys((1, 2)), 3)
    assert replicas_of(plan) == [(1, 2)]


def test_racks_that_a_partition_lacks_come_first() -> None:
    plan = plan_growth(partitions([1]), {1: "a", 2: "a", 3: "b", 4: "b"}, 2)
    assert replicas_of(plan) == [(1, 3)]


def test_leaders_are_spread() -> None:
    plan = plan_growth(partitions(*[[1]] * 6), dict.fromkeys((1, 2, 3)), 3, spreads_leaders=True)
    leaders = Counter(each[0] for each in replicas_of(plan))
    leaders.update({1: 6 - leaders.total()})
    assert leaders == {1: 2, 2: 2, 3: 2}


@pytest.mark.parametrize(
    ("found", "moving", "reason"),
    [
        (partitions([1], leader=-1), (), "no broker leads it"),
        (partitions([1, 2], in_sync=[1]), (), "its replicas on 2 are not in sync"),
        (partitions([1]), (Place("t", 0),), "it is on its way to other brokers"),
    ],
)
def test_partitions_that_cannot_grow_are_left_alone(
    found: dict[Place, PartitionDescription], moving: tuple[Place, ...], reason: str
) -> None:
    plan = plan_growth(found, dict.fromkeys((1, 2, 3)), 3, moving=moving)
    assert plan.steps == []
    assert plan.left_alone == {Place("t", 0): reason}


# ---- a cluster -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grown_cluster() -> Iterator[Cluster]:
    """Three nodes whose internal topics were made when there was one."""
    settings = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "6",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "6",
    }
    with Cluster(settings=settings) as cluster:
        yield cluster


def commit(cluster: Cluster, offset: int) -> None:
    """A transaction that commits how far a group has read."""
    common = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    producer = Producer(common | {"transactional.id": "x"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", str(offset))
    consumer = Consumer(common | {"group.id": "billing"})
    read = [TopicPartition("orders", 0, offset)]
    producer.send_offsets_to_transaction(read, consumer.consumer_group_metadata(), 60)
    producer.commit_transaction(60)
    (place,) = consumer.committed([TopicPartition("orders", 0)], timeout=60)
    assert place.offset == offset
    consumer.close()


def test_internal_topics_get_replicas_on_nodes_that_have_joined(
    grown_cluster: Cluster, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    cluster, run = grown_cluster, Commands(grown_cluster.bootstrap, capfdbinary, tmp_path)
    run.ok("topic", "create", "orders", "--partitions", 1, "--replicas", 3)
    commit(cluster, 1)
    run.ok("config", "set", "--topic", CONSUMER_OFFSETS, "min.insync.replicas=2")
    dry = json.loads(run.ok("cluster", "grow-internal", "--dry-run", "--json"))
    assert {each["topic"] for each in dry["partitions"]} == {CONSUMER_OFFSETS, TRANSACTION_STATE}
    assert all(len(cluster.in_sync(CONSUMER_OFFSETS, number)) == 1 for number in range(6))

    done = json.loads(run.ok("cluster", "grow-internal", "--spread-leaders", "--json"))
    assert len(done["partitions"]) == 12
    assert all(each["done"] and sorted(each["replicas"]) == [1, 2, 3] for each in done["partitions"])
    # only __consumer_offsets asks for two in sync as soon as there are more replicas
    paused = {each["topic"] for each in done["partitions"] if each["pause_s"] is not None}
    assert paused == {CONSUMER_OFFSETS}
    assert done["longest_pause_s"] > 0
    assert done["min_insync_replicas"] == {TRANSACTION_STATE: 2}
    for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        described = json.loads(run.ok("topic", "describe", topic, "--json"))[0]
        assert {len(each["in_sync"]) for each in described["partitions"]} == {3}
        assert Counter(each["leader"] for each in described["partitions"]) == {1: 2, 2: 2, 3: 2}
    assert b"nothing to be done" in run.ok("cluster", "grow-internal")
    cluster.kill(cluster.coordinator_of("billing"))
    commit(cluster, 2)
