"""The topics of coordinators in a cluster of several brokers, which do not replicate yet."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.topics import ensure_topic
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.support.clusters import VirtualCluster, run_cluster

FACTORS = {CONSUMER_OFFSETS: "offsets.topic", TRANSACTION_STATE: "transaction.state.log"}


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("wanted", [None, 2])
def test_coordinator_topics_have_one_replica_unless_settings_say_otherwise(
    name: str, wanted: int | None
) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        services = cluster.nodes[2].services
        await ensure_topic(name, services)
        topic = services.image.topic(name)
        assert topic is not None
        assert {len(each.replicas) for each in topic.partitions} == {wanted or 1}
        assert {each.leader for each in topic.partitions} == {1, 2, 3}

    settings = {} if wanted is None else {f"{FACTORS[name]}.replication.factor": str(wanted)}
    run_cluster(scenario, VirtualCluster(settings=settings))
