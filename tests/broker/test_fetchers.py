"""Followers fetch from their leaders: whole nodes, in virtual time."""

from __future__ import annotations

import asyncio

from tests.support.clusters import VirtualCluster, run_cluster
from tests.support.replication import bytes_of, create_topic, ends_of, error_of, log_of, send


def test_a_write_with_acks_all_reaches_every_replica() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_topic(cluster, "t", [[1, 2, 3]])
        began = asyncio.get_running_loop().time()
        for _ in range(10):
            assert error_of(await send(cluster.nodes[1], "t", 5)) == "NONE"
        assert asyncio.get_running_loop().time() - began < 1
        assert log_of(cluster.nodes[1], "t").high_watermark == 50
        assert ends_of(cluster, "t") == {1: 50, 2: 50, 3: 50}
        logs = [await bytes_of(node, "t") for node in cluster.nodes.values()]
        assert logs[0] == logs[1] == logs[2]
        await cluster.stop()

    run_cluster(scenario, VirtualCluster())
