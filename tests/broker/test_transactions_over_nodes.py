"""Transactions whose coordinator, partitions and offsets are on different nodes, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.broker.coordinators import verification
from barnabas.coordination.effects import Producer as ProducerAndEpoch
from barnabas.coordination.effects import TopicPartition
from barnabas.core.errors import BarnabasError, TransactionCoordinatorFenced
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.records.control import ControlType, build_end_transaction
from tests.support.clusters import VirtualCluster, host_of, run_cluster
from tests.support.coordination import ONE_PARTITION, Coordination, Producer, decided, fetch_committed
from tests.support.replication import create_topic, log_of, replica_of

SETTINGS = {**ONE_PARTITION, "replica.lag.time.max.ms": "10000"}
COORDINATORS, BROKERS = (1, 2, 3), (4, 5)


def cluster_of_five() -> VirtualCluster:
    return VirtualCluster(5, 3, settings=SETTINGS)


async def begun(cluster: VirtualCluster) -> Coordination:
    """Coordinators on nodes 1 to 3; "out" has a partition on node 4 and one on node 5."""
    await cluster.start()
    await create_topic(cluster, "in", [[1, 2, 3]])
    await create_topic(cluster, "out", [[4], [5]])
    at = Coordination(cluster)
    await at.begin(COORDINATORS)
    return at


async def opened(
    at: Coordination, name: str, value: bytes = b"a", partitions: tuple[int, ...] = (0, 1)
) -> Producer:
    """A producer that has written to these partitions of "out"."""
    one = Producer(at, name)
    assert await one.init() == "NONE"
    for partition in partitions:
        assert await one.produce("out", [value], partition) == "NONE"
    return one


def cut_off(cluster: VirtualCluster, node_id: int) -> None:
    """Nothing reaches a node, and nothing comes from it."""
    cluster.network.partition([host_of(node_id)], [host_of(each) for each in cluster.ids if each != node_id])


@pytest.mark.parametrize("commit", [True, False])
def test_records_and_offsets_on_different_nodes_end_together(commit: bool) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        await at.move(TRANSACTION_STATE, 2)
        await at.move(CONSUMER_OFFSETS, 3)
        one = await opened(at, "x")
        assert await one.commit_offset("g", 7) == "NONE"
        assert await fetch_committed(cluster.nodes[3], "g") == ("UNSTABLE_OFFSET_COMMIT", -1)
        assert await one.end(commit=commit) == "NONE"
        await at.until_state("x", "CompleteCommit" if commit else "CompleteAbort")
        for partition, node in enumerate(BROKERS):
            found = await decided(cluster.nodes[node], "out", partition)
            assert (found.committed if commit else found.aborted) == [b"a"]
            assert found.markers == 1
        assert await at.committed("g") == (7 if commit else -1)

    run_cluster(scenario, cluster_of_five())


# ---- coordinators that move ------------------------------------------------------------------------------


async def lose_coordinator(at: Coordination, how: str) -> None:
    """The coordinator moves from node 1 to node 2, or its node is killed."""
    if how == "moved":
        await at.move(TRANSACTION_STATE, 2)
    else:
        await at.cluster.kill(1)
        await at.cluster.until(lambda: at.leader_id(TRANSACTION_STATE) in (2, 3), "another node coordinates")


@pytest.mark.parametrize("how", ["moved", "killed"])
def test_open_transaction_goes_on_with_another_coordinator(how: str) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        one = await opened(at, "x", partitions=(0,))
        await lose_coordinator(at, how)
        assert await one.produce("out", [b"b"], 1) == "NONE"
        assert await one.end() == "NONE"
        await at.until_state("x", "CompleteCommit")
        assert (await decided(cluster.nodes[4], "out", 0)).committed == [b"a"]
        assert (await decided(cluster.nodes[5], "out", 1)).committed == [b"b"]

    run_cluster(scenario, cluster_of_five())


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("how", ["moved", "killed"])
def test_decided_transaction_is_ended_by_another_coordinator(how: str, commit: bool) -> None:
    """PrepareCommit or PrepareAbort: one partition cannot be reached until the coordinator has moved."""

    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        one = await opened(at, "x")
        before = (one.id, one.epoch)
        cut_off(cluster, 5)
        assert await one.end(commit=commit) == "NONE"
        assert (one.id, one.epoch) == (before[0], before[1] + 1)
        await at.until_state("x", "PrepareCommit" if commit else "PrepareAbort")
        await lose_coordinator(at, how)
        await at.until_state("x", "PrepareCommit" if commit else "PrepareAbort")
        cluster.network.heal()
        await at.until_state("x", "CompleteCommit" if commit else "CompleteAbort")
        for partition, node in enumerate(BROKERS):
            found = await decided(cluster.nodes[node], "out", partition)
            assert (found.committed if commit else found.aborted) == [b"a"]
            assert found.pending == []
        # the epoch that the end has raised is the producer's, also where another node coordinates
        assert await one.produce("out", [b"b"]) == "NONE"
        assert await one.end() == "NONE"
        one.epoch = before[1]
        assert await one.produce("out", [b"late"]) in ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")

    run_cluster(scenario, cluster_of_five())


@pytest.mark.parametrize("how", ["moved", "killed"])
def test_complete_and_empty_transactions_are_known_to_another_coordinator(how: str) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        done = await opened(at, "done")
        assert await done.end() == "NONE"
        await at.until_state("done", "CompleteCommit")
        empty = Producer(at, "empty")
        assert await empty.init() == "NONE"
        await lose_coordinator(at, how)
        for one in (done, empty):
            assert await one.produce("out", [b"b"], 1) == "NONE"
            assert await one.end() == "NONE"
            await at.until_state(one.name, "CompleteCommit")
        again = Producer(at, "done")
        assert await again.init() == "NONE"
        assert (again.id, again.epoch > done.epoch) == (done.id, True)
        assert await done.produce("out", [b"fenced"]) in ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")

    run_cluster(scenario, cluster_of_five())


def test_timeout_is_kept_by_a_new_coordinator_that_nobody_asks() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        one = Producer(at, "x", timeout_ms=20_000)
        assert await one.init() == "NONE"
        assert await one.produce("out", [b"a"]) == "NONE"
        began = asyncio.get_running_loop().time()
        await at.move(TRANSACTION_STATE, 2)
        await at.until_state("x", "CompleteAbort")
        assert 19 < asyncio.get_running_loop().time() - began < 25
        assert (await decided(cluster.nodes[4], "out")).aborted == [b"a"]
        assert await one.end() == "INVALID_TXN_STATE"  # as Kafka has it: its end is an abort by now

    run_cluster(scenario, cluster_of_five())


def test_pending_offsets_are_kept_when_the_group_coordinator_moves() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        assert await at.commit("g", 1) == "NONE"
        one = Producer(at, "x")
        assert await one.init() == "NONE"
        assert await one.commit_offset("g", 9) == "NONE"
        await at.move(CONSUMER_OFFSETS, 3)
        assert await at.committed("g", stable=False) == 1
        assert await one.end() == "NONE"
        assert await at.committed("g") == 9
        assert await one.commit_offset("g", 11) == "NONE"
        await cluster.kill(3)
        assert await one.end(commit=False) == "NONE"
        assert await at.committed("g") == 9

    run_cluster(scenario, cluster_of_five())


# ---- markers ---------------------------------------------------------------------------------------------


def test_node_that_hangs_holds_up_only_its_own_partitions() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        stuck = await opened(at, "stuck")
        cut_off(cluster, 5)
        assert await stuck.end() == "NONE"
        began = asyncio.get_running_loop().time()
        for number in range(5):
            one = await opened(at, f"x{number}", partitions=(0,))
            assert await one.end() == "NONE"
            await at.until_state(one.name, "CompleteCommit")
        assert asyncio.get_running_loop().time() - began < 3
        assert at.state_of("stuck") == "PrepareCommit"
        cluster.network.heal()
        await at.until_state("stuck", "CompleteCommit")

    run_cluster(scenario, cluster_of_five())


def test_partition_that_waits_for_its_followers_holds_up_no_other() -> None:
    """Both partitions are on node 4: one request has the markers of both."""

    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        await create_topic(cluster, "slow", [[4, 5]], min_insync_replicas="2")
        one = await opened(at, "x", partitions=(0,))
        assert await one.produce("slow", [b"a"]) == "NONE"
        fetchers = cluster.nodes[5].broker.fetchers
        assert fetchers is not None
        await fetchers.close()
        assert await one.end() == "NONE"
        began = asyncio.get_running_loop().time()
        for number in range(5):
            other = await opened(at, f"x{number}", partitions=(0,))
            assert await other.end() == "NONE"
            await at.until_state(other.name, "CompleteCommit")
        assert asyncio.get_running_loop().time() - began < 3
        assert at.state_of("x") == "PrepareCommit"
        await asyncio.sleep(5)
        log = log_of(cluster.nodes[4], "slow")
        assert (log.last_stable_offset, log.end_offset) == (0, 2)  # one marker, however often it is sent
        await cluster.kill(5)
        await cluster.start(5)
        await at.until_state("x", "CompleteCommit")
        assert (await decided(cluster.nodes[4], "slow")).committed == [b"a"]

    run_cluster(scenario, cluster_of_five())


def test_markers_go_to_the_new_leader_before_the_old_one_answers() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        await create_topic(cluster, "both", [[4, 5]])
        one = Producer(at, "x")
        assert await one.init() == "NONE"
        assert await one.produce("both", [b"before"]) == "NONE"
        assert await one.end() == "NONE"  # from now on there is a connection to node 4
        await at.until_state("x", "CompleteCommit")
        assert await one.produce("both", [b"a"]) == "NONE"
        cut_off(cluster, 4)
        assert await one.end() == "NONE"
        began = asyncio.get_running_loop().time()
        await at.until_state("x", "CompleteCommit")
        # node 4 is fenced after its session; a request to it times out after thirty seconds
        assert asyncio.get_running_loop().time() - began < 15
        assert at.leader_id("both") == 5
        assert (await decided(cluster.nodes[5], "both")).committed == [b"before", b"a"]
        cluster.network.heal()
        await cluster.until(lambda: set(at.image_of("both").isr) == {4, 5}, "node 4 is back")
        found = await decided(cluster.nodes[4], "both")
        assert (found.committed, found.pending) == ([b"before", b"a"], [])

    run_cluster(scenario, cluster_of_five())


def test_marker_of_a_deposed_coordinator_is_refused() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        one = await opened(at, "x", partitions=(0,))
        old_epoch = at.image_of(TRANSACTION_STATE).leader_epoch
        await at.move(TRANSACTION_STATE, 2)
        assert await one.end() == "NONE"
        await at.until_state("x", "CompleteCommit")
        replica = replica_of(cluster.nodes[4], "out")
        assert replica is not None
        marker = build_end_transaction(
            ControlType.ABORT,
            producer_id=one.id,
            producer_epoch=one.epoch + 1,
            coordinator_epoch=old_epoch,
            timestamp=0,
        )
        with pytest.raises(TransactionCoordinatorFenced):
            await replica.append_own(marker, transaction_version=2)

    run_cluster(scenario, cluster_of_five())


# ---- verification ----------------------------------------------------------------------------------------


def test_batch_is_verified_with_a_coordinator_that_moves_meanwhile() -> None:
    """The coordinator hangs when it is asked: the request is given up when another one is named."""

    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        one = await opened(at, "x", b"before", partitions=(0,))
        assert await one.end() == "NONE"
        await at.until_state("x", "CompleteCommit")
        cut_off(cluster, 1)
        began = asyncio.get_running_loop().time()
        assert await one.produce("out", [b"a"]) == "NONE"
        assert asyncio.get_running_loop().time() - began < 15
        assert at.leader_id(TRANSACTION_STATE) in (2, 3)
        assert await one.end() == "NONE"
        await at.until_state("x", "CompleteCommit")
        assert (await decided(cluster.nodes[4], "out")).committed == [b"before", b"a"]

    run_cluster(scenario, cluster_of_five())


def test_coordinator_that_waits_for_followers_holds_up_no_other_verification() -> None:
    """Two partitions of __transaction_state, of which one has a follower that hangs; node 4 asks for both."""

    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.start()
        await create_topic(cluster, "out", [[4]])
        await create_topic(cluster, TRANSACTION_STATE, [[1, 2], [1, 3]], min_insync_replicas="2")
        at = Coordination(cluster)
        names = {at.place_of(TRANSACTION_STATE, name): name for name in ("a", "b", "c", "d")}
        stuck, free = Producer(at, names[0]), Producer(at, names[1])
        for one in (stuck, free):
            assert await one.init() == "NONE"
            assert await one.produce("out", [b"before"]) == "NONE"
            assert await one.end() == "NONE"
            await at.until_state(one.name, "CompleteCommit")
        fetchers = cluster.nodes[2].broker.fetchers
        assert fetchers is not None
        await fetchers.close()
        waiting = asyncio.ensure_future(stuck.produce("out", [b"a"]))
        await asyncio.sleep(0.5)
        began = asyncio.get_running_loop().time()
        assert await free.produce("out", [b"b"]) == "NONE"
        assert asyncio.get_running_loop().time() - began < 1
        assert not waiting.done()
        waiting.cancel()

    run_cluster(scenario, cluster_of_five())


def test_marker_that_is_written_during_verification_costs_the_client_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes the guard away; the coordinator is asked again, and the first batch is written."""
    asked = 0
    ask = verification._ask

    async def ask_and_mark(
        places: Sequence[TopicPartition], name: str, producer: ProducerAndEpoch, *more: Any
    ) -> dict[TopicPartition, BarnabasError]:
        nonlocal asked
        asked += 1
        refused = await ask(places, name, producer, *more)
        if asked == 2:
            services = more[-1]
            for place in places:
                topic = services.image.topic(place.topic)
                replica = await services.replicas.leader(topic, place.partition)
                replica.log.producers._guards.pop(producer.id)  # as the replay of a marker does
        return refused

    async def scenario(cluster: VirtualCluster) -> None:
        at = await begun(cluster)
        monkeypatch.setattr(verification, "_ask", ask_and_mark)
        one = await opened(at, "x", b"before", partitions=(0,))
        assert await one.end() == "NONE"
        await at.until_state("x", "CompleteCommit")
        assert await one.produce("out", [b"a"]) == "NONE"
        assert asked == 3
        assert await one.end() == "NONE"
        await at.until_state("x", "CompleteCommit")
        assert (await decided(cluster.nodes[4], "out")).committed == [b"before", b"a"]

    run_cluster(scenario, cluster_of_five())
