"""The ISR of real leaders with real followers and a real controller: whole nodes, in virtual time."""

from __future__ import annotations

import asyncio

from barnabas.broker.node import Node
from tests.support.clusters import VirtualCluster, run_cluster
from tests.support.replication import create_topic, ends_of, error_of, log_of, partition_of, replica_of, send

SETTINGS = {"replica.lag.time.max.ms": "10000", "replica.fetch.wait.max.ms": "500"}


def now() -> float:
    return asyncio.get_running_loop().time()


async def until_isr(cluster: VirtualCluster, isr: set[int], at: int = 1) -> None:
    await cluster.until(
        lambda: set(partition_of(cluster.nodes[at], "t").isr) == isr, f"the ISR is {isr}", seconds=60
    )


def replicas_of(node: Node) -> tuple[int, int]:
    counts = node.broker.replicas.context.isr_changes
    return counts.shrinks, counts.expands


def test_the_isr_follows_a_broker_that_dies_and_comes_back() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_topic(cluster, "t", [[1, 2, 3]], min_insync_replicas="2")
        assert error_of(await send(cluster.nodes[1], "t", 5)) == "NONE"
        await cluster.kill(3)
        began = now()
        assert error_of(await send(cluster.nodes[1], "t", 5, timeout_ms=60_000)) == "NONE"
        assert now() - began < 11  # the controller fences it: at once by its socket, else by its session
        await until_isr(cluster, {1, 2})
        for _ in range(10):
            assert error_of(await send(cluster.nodes[1], "t", 5)) == "NONE"
        await cluster.start(3)
        await until_isr(cluster, {1, 2, 3})
        assert error_of(await send(cluster.nodes[1], "t", 5)) == "NONE"
        assert ends_of(cluster, "t") == {1: 65, 2: 65, 3: 65}
        assert replicas_of(cluster.nodes[1])[1] == 1
        await cluster.stop()

    run_cluster(scenario, VirtualCluster(settings=SETTINGS))


def test_min_insync_replicas_refuses_until_enough_are_back() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_topic(cluster, "t", [[1, 2, 3]], min_insync_replicas="3")
        assert error_of(await send(cluster.nodes[1], "t", 5)) == "NONE"
        await cluster.kill(3)
        await until_isr(cluster, {1, 2})
        assert error_of(await send(cluster.nodes[1], "t", 5)) == "NOT_ENOUGH_REPLICAS"
        assert error_of(await send(cluster.nodes[1], "t", 5, acks=1)) == "NONE"
        log = log_of(cluster.nodes[1], "t")
        await cluster.until(lambda: ends_of(cluster, "t")[2] == 10, "the other follower has it")
        assert log.high_watermark == 5
        await cluster.start(3)
        await until_isr(cluster, {1, 2, 3})
        await cluster.until(lambda: log.high_watermark == 10, "what acks=1 wrote is committed")
        assert error_of(await send(cluster.nodes[1], "t", 5)) == "NONE"
        await cluster.stop()

    run_cluster(scenario, VirtualCluster(settings=SETTINGS))


def test_a_follower_that_lives_but_does_not_fetch_leaves_after_the_lag_time() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_topic(cluster, "t", [[1, 2, 3]])
        assert error_of(await send(cluster.nodes[1], "t", 5)) == "NONE"
        fetchers = cluster.nodes[3].broker.fetchers
        assert fetchers is not None
        await fetchers.close()
        began = now()
        assert error_of(await send(cluster.nodes[1], "t", 5, timeout_ms=60_000)) == "NONE"
        assert 9 < now() - began < 16
        assert set(partition_of(cluster.nodes[1], "t").isr) == {1, 2}
        assert replicas_of(cluster.nodes[1]) == (1, 0)
        await cluster.stop()

    run_cluster(scenario, VirtualCluster(settings=SETTINGS))


def test_a_leader_that_dies_is_replaced_and_nothing_acknowledged_is_lost() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_topic(cluster, "t", [[1, 2, 3]], min_insync_replicas="2")
        for _ in range(5):
            assert error_of(await send(cluster.nodes[1], "t", 5)) == "NONE"
        await cluster.kill(1)
        await cluster.until(lambda: partition_of(cluster.nodes[2], "t").leader == 2, "node 2 leads")
        assert error_of(await send(cluster.nodes[2], "t", 5)) == "NONE"
        replica = replica_of(cluster.nodes[2], "t")
        assert replica is not None
        assert replica.log.high_watermark == 30
        assert [entry.start_offset for entry in replica.log.epochs.entries] == [0, 25]
        await cluster.start(1)
        await until_isr(cluster, {1, 2, 3}, at=2)
        assert ends_of(cluster, "t") == {1: 30, 2: 30, 3: 30}
        await cluster.stop()

    run_cluster(scenario, VirtualCluster(settings=SETTINGS))
