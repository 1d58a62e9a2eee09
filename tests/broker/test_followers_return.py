"""Followers that were away, lost their disk or lead no more come back to what their leader has.

Whole nodes, in virtual time: node 1 is the controller, the partitions are on brokers 2 and 3. After each of
these the logs of both are equal, byte for byte.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.broker.connections.requests import ANONYMOUS, BROKER_ROUTER, RequestContext
from barnabas.broker.handlers import delete_records
from barnabas.broker.replicas import fetcher as fetcher_module
from barnabas.core.errors import StorageError
from barnabas.log import following
from barnabas.metadata.parts import PartitionImage
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.schema import NO_UUID
from tests.support.clusters import VirtualCluster, host_of, run_cluster
from tests.support.replication import (
    bytes_of,
    create_topic,
    error_of,
    knows,
    log_of,
    partition_of,
    replica_of,
    send,
)

LEADER, FOLLOWER = 2, 3
SETTINGS = {"replica.lag.time.max.ms": "10000", "log.segment.bytes": "1048576"}


def run(scenario: Any, **settings: str) -> None:
    run_cluster(scenario, VirtualCluster(voters=1, settings=SETTINGS | settings))


def image_of(cluster: VirtualCluster, name: str = "t") -> PartitionImage:
    return partition_of(cluster.nodes[1], name)


async def until_isr(cluster: VirtualCluster, isr: set[int], name: str = "t") -> None:
    def holds() -> bool:
        return set(image_of(cluster, name).isr) == isr

    await cluster.until(holds, f"the ISR is {isr}", seconds=120)


async def until_leader(cluster: VirtualCluster, leader: int, name: str = "t") -> None:
    def leads() -> bool:
        return partition_of(cluster.nodes[leader], name).leader == leader

    await cluster.until(leads, f"{leader} leads")


async def begin(cluster: VirtualCluster, **configs: str) -> None:
    """A topic with ten records, led by broker 2 and followed by 3."""
    await cluster.start()
    await create_topic(cluster, "t", [[LEADER, FOLLOWER]], **configs)
    await write(cluster, 10)


async def write(cluster: VirtualCluster, count: int, *, acks: int = -1, to: int = LEADER) -> None:
    assert error_of(await send(cluster.nodes[to], "t", count, acks=acks)) == "NONE"


async def until_equal(cluster: VirtualCluster, name: str = "t") -> None:
    """Both replicas hold the same, and are in sync."""
    await until_isr(cluster, {LEADER, FOLLOWER}, name)
    logs = [log_of(cluster.nodes[each], name) for each in (LEADER, FOLLOWER)]

    def are_even() -> bool:
        return len({(log.start_offset, log.end_offset, log.high_watermark) for log in logs}) == 1

    await cluster.until(are_even, "both replicas are even")
    held = [await bytes_of(cluster.nodes[each], name) for each in (LEADER, FOLLOWER)]
    assert held[0] == held[1]
    assert logs[0].epochs.entries == logs[1].epochs.entries


async def delete_before(cluster: VirtualCluster, offset: int) -> None:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name="t", partitions=[asked])]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=60_000)
    context = RequestContext(ANONYMOUS, "PLAINTEXT", BROKER_ROUTER, "test", "test", 2)
    answer = await delete_records.handle(request, context, cluster.nodes[LEADER].services)
    assert answer.topics[0].partitions[0].error_code == 0


def totals(cluster: VirtualCluster, node_id: int) -> tuple[int, int]:
    """How many logs of a node were cut, and how many were begun anew."""
    home = log_of(cluster.nodes[node_id], "t").home.totals
    return home.truncations, home.restarts


def test_a_follower_that_was_away_catches_up() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await begin(cluster)
        await cluster.kill(FOLLOWER)
        for _ in range(20):
            await write(cluster, 10)
        await cluster.start(FOLLOWER)
        await until_equal(cluster)
        assert totals(cluster, FOLLOWER) == (0, 0)
        await cluster.stop()

    run(scenario)


def test_a_follower_that_lost_its_disk_fetches_everything_again() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await begin(cluster)
        await cluster.kill(FOLLOWER)
        await write(cluster, 10)
        await cluster.format(FOLLOWER)
        await cluster.start(FOLLOWER)
        await until_equal(cluster)
        assert log_of(cluster.nodes[FOLLOWER], "t").end_offset == 20
        await cluster.stop()

    run(scenario)


def test_a_follower_starts_over_where_its_leader_begins_later() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await begin(cluster)
        await cluster.kill(FOLLOWER)
        await until_isr(cluster, {LEADER})
        for _ in range(3):
            await write(cluster, 10)
        await delete_before(cluster, 30)
        await cluster.start(FOLLOWER)
        await until_equal(cluster)
        log = log_of(cluster.nodes[FOLLOWER], "t")
        assert (log.start_offset, log.end_offset) == (30, 40)
        assert totals(cluster, FOLLOWER) == (0, 1)
        await cluster.stop()

    run(scenario)


def test_deleted_records_are_deleted_at_followers_too() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await begin(cluster)
        await write(cluster, 10)
        await delete_before(cluster, 10)
        await until_equal(cluster)
        assert log_of(cluster.nodes[FOLLOWER], "t").start_offset == 10
        await cluster.stop()

    run(scenario)


def test_a_leader_that_comes_back_is_cut_where_the_histories_part() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await begin(cluster)
        cluster.network.partition([host_of(LEADER)], [host_of(FOLLOWER)])
        await write(cluster, 7, acks=1)  # held by the leader alone
        await cluster.kill(LEADER)
        cluster.network.heal()
        await until_leader(cluster, FOLLOWER)
        await write(cluster, 3, to=FOLLOWER)
        await cluster.start(LEADER)
        await until_equal(cluster)
        log = log_of(cluster.nodes[LEADER], "t")
        assert log.end_offset == 13
        assert [entry.start_offset for entry in log.epochs.entries] == [0, 10]
        assert totals(cluster, LEADER) == (1, 0)
        await cluster.stop()

    run(scenario)


def test_a_partition_that_fails_does_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await begin(cluster)
        await create_topic(cluster, "sick", [[LEADER, FOLLOWER]])
        await until_isr(cluster, {LEADER, FOLLOWER}, "sick")
        append, tries = following.append, []

        async def failing(log: Any, data: Any, leader_epoch: int) -> int:
            if "sick" not in log.path:
                return await append(log, data, leader_epoch)
            tries.append(asyncio.get_running_loop().time())
            raise StorageError("a bad sector")

        monkeypatch.setattr(following, "append", failing)
        assert error_of(await send(cluster.nodes[LEADER], "sick", 5, acks=1)) == "NONE"
        began = asyncio.get_running_loop().time()
        for _ in range(50):
            await write(cluster, 1)
            await asyncio.sleep(0.1)
        assert asyncio.get_running_loop().time() - began < 10  # 5 s of pauses, and no wait for the other one
        assert 3 <= len(tries) <= 8  # replica.fetch.backoff.ms is a second
        monkeypatch.setattr(following, "append", append)
        await until_equal(cluster, "sick")
        await until_equal(cluster)
        await cluster.stop()

    run(scenario)


def test_nothing_is_fetched_before_the_node_knows_its_own_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With an older epoch the leader would take what it fetches for that of its last life."""
    begun: list[tuple[int, int]] = []
    original = fetcher_module.Fetcher.start

    def start(fetcher: Any) -> None:
        site = fetcher._site
        begun.append((site._metadata.image.brokers[site.node_id].epoch, site.broker_epoch()))
        original(fetcher)

    monkeypatch.setattr(fetcher_module.Fetcher, "start", start)

    async def scenario(cluster: VirtualCluster) -> None:
        await begin(cluster)
        await cluster.kill(FOLLOWER)
        await write(cluster, 5)
        begun.clear()
        await cluster.start(FOLLOWER)
        await until_equal(cluster)
        assert begun
        assert all(published == own for published, own in begun)
        await cluster.stop()

    run(scenario)


async def delete_topic(cluster: VirtualCluster) -> None:
    topics = [DeleteTopicState(name="t", topic_id=NO_UUID)]
    request = DeleteTopicsRequest(topics=topics, topic_names=[], timeout_ms=30_000)
    deleted = await cluster.nodes[1].services.controller.send(request, DeleteTopicsResponse)
    assert deleted.responses[0].error_code == 0
    await cluster.until(lambda: all(not knows(each, "t") for each in cluster.nodes.values()), "it is gone")


def test_a_topic_that_was_made_anew_meanwhile_is_fetched_from_its_beginning() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await begin(cluster)
        await cluster.kill(FOLLOWER)
        await delete_topic(cluster)
        there = {each: cluster.nodes[each] for each in (1, LEADER)}
        await create_topic(cluster, "t", [[LEADER, FOLLOWER]], nodes=there)
        await write(cluster, 3)
        await cluster.start(FOLLOWER)
        await until_equal(cluster)
        assert log_of(cluster.nodes[FOLLOWER], "t").end_offset == 3
        await cluster.stop()

    run(scenario)


async def reassign(cluster: VirtualCluster, *replicas: int) -> None:
    partition = ReassignablePartition(partition_index=0, replicas=list(replicas))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=30_000, topics=[ReassignableTopic(name="t", partitions=[partition])]
    )
    send_to = cluster.nodes[1].services.controller.send
    answer = await send_to(request, AlterPartitionReassignmentsResponse)
    assert answer.responses[0].partitions[0].error_code == 0

    def has_arrived() -> bool:
        image = image_of(cluster)
        return image.replicas == replicas and set(image.isr) == set(replicas)

    await cluster.until(has_arrived, f"the partition is on {replicas}")


def test_the_replication_factor_grows_and_shrinks() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await begin(cluster)
        await reassign(cluster, LEADER, FOLLOWER, 1)
        await write(cluster, 5)
        await cluster.until(lambda: log_of(cluster.nodes[1], "t").end_offset == 15, "1 has everything")
        assert await bytes_of(cluster.nodes[1], "t") == await bytes_of(cluster.nodes[LEADER], "t")
        await reassign(cluster, 1)
        await write(cluster, 5, to=1)

        def are_gone() -> bool:
            return all(replica_of(cluster.nodes[each], "t") is None for each in (LEADER, FOLLOWER))

        await cluster.until(are_gone, "the replicas that were removed are closed")
        assert log_of(cluster.nodes[1], "t").high_watermark == 20
        await reassign(cluster, LEADER, FOLLOWER)  # from nothing again
        await write(cluster, 5)
        await until_equal(cluster)
        await cluster.stop()

    run(scenario)


@pytest.mark.parametrize("is_deleted", [True, False])
def test_files_of_a_replica_that_went_meanwhile_are_set_aside(is_deleted: bool) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await begin(cluster)
        await cluster.kill(FOLLOWER)
        if is_deleted:
            await delete_topic(cluster)
        else:
            await reassign(cluster, LEADER, 1)
            await write(cluster, 5)
        await cluster.start(FOLLOWER)
        names = [each for each in await cluster.disks[FOLLOWER].listdir("") if each.startswith("t-0")]
        assert len(names) == 1
        assert names[0].endswith("-stray")
        await cluster.stop()

    run(scenario)


def test_a_write_is_answered_when_its_time_is_over_or_the_isr_is_too_small() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await begin(cluster, min_insync_replicas="2")
        fetchers = cluster.nodes[FOLLOWER].broker.fetchers
        assert fetchers is not None
        await fetchers.close()
        began = asyncio.get_running_loop().time()
        late = await send(cluster.nodes[LEADER], "t", 5, timeout_ms=2000)
        assert error_of(late) == "REQUEST_TIMED_OUT"
        assert 2 <= asyncio.get_running_loop().time() - began < 2.5
        waiting = await send(cluster.nodes[LEADER], "t", 5, timeout_ms=60_000)
        assert error_of(waiting) in ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT")
        assert set(image_of(cluster).isr) == {LEADER}
        assert error_of(await send(cluster.nodes[LEADER], "t", 5)) == "NOT_ENOUGH_REPLICAS"
        log = log_of(cluster.nodes[LEADER], "t")
        assert (log.high_watermark, log.end_offset) == (10, 20)
        await cluster.stop()

    run(scenario)


def test_a_clean_stop_hands_leaderships_over_first() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await begin(cluster)
        leaving = cluster.nodes.pop(LEADER)
        stop = asyncio.ensure_future(leaving.stop())
        await until_leader(cluster, FOLLOWER)
        assert not stop.done()
        assert not cluster.nodes[1].services.image.brokers[LEADER].fenced
        await write(cluster, 5, to=FOLLOWER)
        await stop
        assert image_of(cluster).isr == (FOLLOWER,)
        await cluster.start(LEADER)
        await until_equal(cluster)
        await cluster.stop()

    run(scenario)
