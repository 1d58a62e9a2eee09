"""The topics of coordinators in clusters of one to four brokers."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.topics import ensure_topic
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.support.clusters import VirtualCluster, run_cluster

FACTORS = {CONSUMER_OFFSETS: "offsets.topic", TRANSACTION_STATE: "transaction.state.log"}


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize(
    ("nodes", "wanted", "replicas"), [(1, None, 1), (2, None, 2), (3, None, 3), (4, None, 3), (3, 2, 2)]
)
def test_coordinator_topics_have_three_replicas_or_as_many_as_there_are_brokers(
    name: str, nodes: int, wanted: int | None, replicas: int
) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        services = cluster.nodes[1].services
        await ensure_topic(name, services)
        topic = services.image.topic(name)
        assert topic is not None
        assert {len(each.replicas) for each in topic.partitions} == {replicas}
        assert {each.leader for each in topic.partitions} == set(range(1, nodes + 1))
        configs = services.image.topic_config(name)
        min_in_sync = str(min(2, replicas)) if name == TRANSACTION_STATE else None
        assert configs.get("min.insync.replicas") == min_in_sync

    settings = {} if wanted is None else {f"{FACTORS[name]}.replication.factor": str(wanted)}
    run_cluster(scenario, VirtualCluster(nodes, min(nodes, 3), settings=settings))


def test_broker_that_is_down_counts() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await cluster.kill(3)
        services = cluster.nodes[1].services
        await cluster.until(lambda: services.image.brokers[3].fenced, "broker 3 is fenced")
        await ensure_topic(CONSUMER_OFFSETS, services)
        topic = services.image.topic(CONSUMER_OFFSETS)
        assert topic is not None
        assert {len(each.replicas) for each in topic.partitions} == {3}
        assert {each.leader for each in topic.partitions} == {1, 2}

    run_cluster(scenario, VirtualCluster())
