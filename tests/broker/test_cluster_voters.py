"""Voters of a running quorum are added and removed, in virtual time."""

from __future__ import annotations

import asyncio

from barnabas.raft import messages as raft
from barnabas.raft.election import State, VoterKey
from barnabas.raft.voters import Endpoint
from tests.support.clusters import CONTROLLER_PORT, VirtualCluster, directory_of, host_of, run_cluster

NEWCOMER = 4


def voters_of(cluster: VirtualCluster, node_id: int) -> tuple[int, ...]:
    return cluster.nodes[node_id].quorum.driver.core.voters.ids


def test_a_controller_without_voters_observes_until_it_is_added() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.format(NEWCOMER, is_initial=False)
        await cluster.start(NEWCOMER)
        newcomer = cluster.nodes[NEWCOMER].quorum
        await cluster.until(lambda: newcomer.is_caught_up, "the newcomer has the metadata")
        assert newcomer.driver.state is State.FOLLOWER
        assert voters_of(cluster, NEWCOMER) == (1, 2, 3)

        leader = cluster.leader()
        assert leader is not None
        endpoint = Endpoint("CONTROLLER", host_of(NEWCOMER), CONTROLLER_PORT)
        key = VoterKey(NEWCOMER, directory_of(NEWCOMER))
        added = await leader.quorum.driver.received(raft.AddRaftVoter(key, (endpoint,), 30_000))
        assert added.error == raft.NONE
        await cluster.until(lambda: voters_of(cluster, NEWCOMER) == (1, 2, 3, 4), "it knows that it votes")

    run_cluster(scenario, VirtualCluster(4, roles={NEWCOMER: "controller"}))


def test_a_controller_that_finds_no_quorum_does_not_lead_one_of_its_own() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.format(NEWCOMER, is_initial=False)
        await cluster.start(NEWCOMER)
        driver = cluster.nodes[NEWCOMER].quorum.driver
        await asyncio.sleep(60)  # of virtual time
        assert driver.state is State.UNATTACHED
        assert driver.epoch == 0
        assert voters_of(cluster, NEWCOMER) == ()

    run_cluster(scenario, VirtualCluster(4, roles={NEWCOMER: "controller"}))
