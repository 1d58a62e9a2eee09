"""Coordinators follow their partitions from node to node: whole nodes, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.support.clusters import VirtualCluster, run_cluster
from tests.support.coordination import (
    ONE_PARTITION,
    Coordination,
    coordinator_at,
    fetch_committed,
    loaded_at,
)
from tests.support.replication import create_topic, log_of

SETTINGS = {**ONE_PARTITION, "replica.lag.time.max.ms": "10000"}


async def begun(cluster: VirtualCluster) -> Coordination:
    await cluster.start()
    await create_topic(cluster, "in", [[1, 2, 3]])
    coordination = Coordination(cluster)
    await coordination.begin()
    return coordination


@pytest.mark.parametrize("topic", [CONSUMER_OFFSETS, TRANSACTION_STATE])
def test_partition_is_loaded_by_its_new_leader_before_any_request(topic: str) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        for to in (2, 3, 1, 2):
            await at.move(topic, to)
            node = cluster.nodes[to]
            await cluster.until(lambda node=node: loaded_at(node, topic) == [0], "it is loaded")  # type: ignore[misc]
            others = [each for each in cluster.nodes if each != to]
            await cluster.until(
                lambda others=others: not any(loaded_at(cluster.nodes[each], topic) for each in others),  # type: ignore[misc]
                "the others have let it go",
            )
        await cluster.kill(2)
        await cluster.until(lambda: at.leader_id(topic) in (1, 3), "another node leads")
        await cluster.until(lambda: any(loaded_at(each, topic) for each in cluster.nodes.values()), "loaded")

    run_cluster(scenario, VirtualCluster(settings=SETTINGS))


def test_partition_whose_replica_is_removed_is_let_go() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_topic(cluster, "in", [[1, 2, 3]])
        at = Coordination(cluster)
        await at.begin([1, 2, 3])
        assert await at.commit("g", 1) == "NONE"
        node = cluster.nodes[1]
        await at.reassign(CONSUMER_OFFSETS, [2, 3, 4])
        await cluster.until(lambda: at.leader_id(CONSUMER_OFFSETS) == 2, "node 2 leads")
        assert loaded_at(node, CONSUMER_OFFSETS) == []
        assert await at.commit_once("g", 2, node=node) == "NOT_COORDINATOR"
        assert await at.committed("g") == 1
        assert await at.commit("g", 3) == "NONE"

    run_cluster(scenario, VirtualCluster(4, 3, settings=SETTINGS))


def test_commits_are_known_wherever_the_coordinator_moves() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        for number, to in enumerate((2, 3, 1), 1):
            assert await at.commit("g", number) == "NONE"
            await at.move(CONSUMER_OFFSETS, to)
            assert await at.committed("g") == number
        leader = at.leader_id(CONSUMER_OFFSETS)
        assert await at.commit("g", 10) == "NONE"
        await cluster.kill(leader)
        assert await at.committed("g") == 10
        assert await at.commit("g", 11) == "NONE"
        await cluster.start(leader)
        await at.move(CONSUMER_OFFSETS, leader)
        assert await at.committed("g") == 11

    run_cluster(scenario, VirtualCluster(settings=SETTINGS))


def test_deposed_coordinator_does_not_acknowledge_what_it_lost() -> None:
    """KAFKA-20634: its record is truncated, and the high watermark passes the same offset all the same."""

    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        await at.move(CONSUMER_OFFSETS, 1)
        assert await at.commit("g", 1) == "NONE"
        cluster.network.partition(["node-1"], ["node-2", "node-3"])
        lost = asyncio.ensure_future(at.commit_once("g", 99, node=cluster.nodes[1]))
        await cluster.until(lambda: at.leader_id(CONSUMER_OFFSETS) in (2, 3), "another node leads")
        for offset in (2, 3, 4):
            assert await at.commit("g", offset) == "NONE"
        cluster.network.heal()
        await cluster.until(lambda: set(at.image_of(CONSUMER_OFFSETS).isr) == {1, 2, 3}, "all are in sync")
        assert await asyncio.wait_for(lost, 60) in ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE")
        assert await at.committed("g") == 4
        await at.move(CONSUMER_OFFSETS, 1)
        assert await at.committed("g") == 4

    run_cluster(scenario, VirtualCluster(settings={**SETTINGS, "offsets.commit.timeout.ms": "600000"}))


def test_commit_that_is_not_replicated_in_time_is_answered_and_may_count_later() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        await at.move(CONSUMER_OFFSETS, 1)
        assert await at.commit("g", 1) == "NONE"
        for each in (2, 3):
            fetchers = cluster.nodes[each].broker.fetchers
            assert fetchers is not None
            await fetchers.close()
        began = asyncio.get_running_loop().time()
        assert await at.commit_once("g", 2, node=cluster.nodes[1]) == "COORDINATOR_NOT_AVAILABLE"
        assert 5 <= asyncio.get_running_loop().time() - began < 6
        assert await fetch_committed(cluster.nodes[1], "g") == ("COORDINATOR_NOT_AVAILABLE", -1)
        # the ISR shrinks to the leader, and what waited is committed
        assert await at.committed("g") == 2
        assert await at.commit("g", 3) == "NONE"

    run_cluster(scenario, VirtualCluster(settings=SETTINGS))


def test_too_small_isr_refuses_writes_and_serves_reads() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        await at.move(CONSUMER_OFFSETS, 1)
        assert await at.commit("g", 1) == "NONE"
        node = cluster.nodes[1]
        for each in (2, 3):
            fetchers = cluster.nodes[each].broker.fetchers
            assert fetchers is not None
            await fetchers.close()
        assert await at.commit("g", 2) == "NONE"
        assert at.image_of(CONSUMER_OFFSETS).isr == (1,)
        coordinator = coordinator_at(node, CONSUMER_OFFSETS)
        assert coordinator is not None
        host = await coordinator.host(0)
        await at.set_config(CONSUMER_OFFSETS, "min.insync.replicas", "2")
        await cluster.until(lambda: host.replica.role.is_under_min, "it is too small")
        for _ in range(3):
            assert await at.commit_once("g", 3, node=node) == "COORDINATOR_NOT_AVAILABLE"
        assert await fetch_committed(node, "g") == ("NONE", 2)
        assert await coordinator.host(0) is host  # nothing had to be loaded anew
        assert log_of(node, CONSUMER_OFFSETS).end_offset == host.replica.log.high_watermark
        await at.set_config(CONSUMER_OFFSETS, "min.insync.replicas", "1")
        assert await at.commit("g", 3) == "NONE"

    run_cluster(scenario, VirtualCluster(settings=SETTINGS))
