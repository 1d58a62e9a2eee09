"""Leaders that the controller looks after by itself: whole nodes, in virtual time."""

from __future__ import annotations

import asyncio

from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.clusters import VirtualCluster, run_cluster
from tests.support.replication import create_topic, partition_of

DEFAULT_S = 300
TOPIC_RESOURCE = 2


def leader_of(cluster: VirtualCluster, name: str = "t") -> int:
    return partition_of(cluster.nodes[1], name).leader


async def until_leader(cluster: VirtualCluster, leader: int, seconds: float = 60) -> None:
    await cluster.until(lambda: leader_of(cluster) == leader, f"{leader} leads", seconds=seconds)


async def come_back(cluster: VirtualCluster) -> None:
    """Broker 2, the preferred leader, dies and comes back; 3 leads when it is in sync again."""
    await cluster.start()
    await create_topic(cluster, "t", [[2, 3]])
    await cluster.kill(2)
    await until_leader(cluster, 3)
    await cluster.start(2)
    await cluster.until(lambda: len(partition_of(cluster.nodes[1], "t").isr) == 2, "2 is in sync")
    assert leader_of(cluster) == 3


def test_a_preferred_leader_leads_again_by_itself() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await come_back(cluster)
        await until_leader(cluster, 2, seconds=DEFAULT_S + 1)
        await cluster.stop()

    run_cluster(scenario, VirtualCluster(voters=1))


def test_a_controller_that_becomes_active_looks_after_leaders_too() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await come_back(cluster)
        active = cluster.leader()
        assert active is not None
        if active.node_id != 1:  # the node that is asked
            await cluster.kill(active.node_id)
            await cluster.until(lambda: cluster.leader() is not None, "another controller is active")
            await cluster.start(active.node_id)
        await until_leader(cluster, 2, seconds=2 * DEFAULT_S)
        await cluster.stop()

    run_cluster(scenario, VirtualCluster(settings={"leader.imbalance.check.interval.seconds": "30"}))


def test_leaders_stay_where_rebalancing_is_off() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await come_back(cluster)
        await asyncio.sleep(3 * DEFAULT_S)
        assert leader_of(cluster) == 3
        await cluster.stop()

    run_cluster(scenario, VirtualCluster(voters=1, settings={"auto.leader.rebalance.enable": "false"}))


def test_a_topic_that_allows_unclean_elections_later_gets_a_leader() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_topic(cluster, "t", [[2, 3]])
        await cluster.nodes.pop(3).stop()
        await cluster.until(lambda: partition_of(cluster.nodes[1], "t").isr == (2,), "3 has left")
        await cluster.kill(2)
        await until_leader(cluster, -1)
        await cluster.start(3)
        await asyncio.sleep(DEFAULT_S + 1)
        assert leader_of(cluster) == -1
        setting = AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t", configs=[setting])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        response = await cluster.nodes[1].services.controller.send(request, IncrementalAlterConfigsResponse)
        assert response.responses[0].error_code == 0
        await until_leader(cluster, 3, seconds=DEFAULT_S + 1)
        await cluster.stop()

    run_cluster(scenario, VirtualCluster(voters=1))
