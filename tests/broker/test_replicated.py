"""Partitions with replicas on several nodes, seen from one: its role, the high watermark, the waiters."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from barnabas.broker.handlers import delete_records as delete_records_handler
from barnabas.broker.handlers import fetch, list_offsets, offset_for_leader_epoch, produce
from barnabas.broker.replicas import replicas as replicas_module
from barnabas.broker.replicas.fetch_sessions import FetchContext, Want
from barnabas.broker.replicas.followers import DEBUGGER, UNKNOWN_OFFSET
from barnabas.broker.replicas.purgatory import LongPoll
from barnabas.broker.replicas.replica import NotEnoughReplicas, Replica, UnknownLeaderEpoch
from barnabas.broker.replicas.roles import Following, Leading, NotLeaderOrFollower
from barnabas.core.clock import SystemClock
from barnabas.core.errors import BarnabasError, FencedLeaderEpoch, OffsetOutOfRange, StorageError
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log import following
from barnabas.log.config import LogConfig
from barnabas.log.partition import Appended, PartitionLog
from barnabas.log.reading import EARLIEST, LATEST, MAX_TIMESTAMP
from barnabas.log.trimming import delete_records
from barnabas.metadata.parts import TopicImage
from barnabas.metadata.records import (
    NO_LEADER,
    FenceBrokerRecord,
    PartitionChangeRecord,
    UnfenceBrokerRecord,
)
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData, ReplicaState
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.schema import NO_UUID
from tests.broker.test_replicas import NODE, OTHER, Site, on_a_site, until
from tests.controller.clusters import Cluster, topic
from tests.support.logs import batch, open_directory


def create(site: Site, name: str = "t", partitions: int = 1, first: int = NODE) -> TopicImage:
    """A topic with a replica here and one on the other node, in sync; the first of the two leads."""
    nodes = [NODE, OTHER] if first == NODE else [OTHER, NODE]
    site.cluster.create(topic(name, assigned=dict.fromkeys(range(partitions), nodes)))
    return site.cluster.image.topics_by_name[name]


def change(site: Site, made: TopicImage, partition: int = 0, **changed: Any) -> None:
    site.commit(PartitionChangeRecord(partition_id=partition, topic_id=made.id, **changed))


async def opened(site: Site, made: TopicImage, partition: int = 0) -> Replica:
    """The replica that follows, once it is open."""
    await until(lambda: site.replicas.followed(made, partition))
    replica = site.replicas.followed(made, partition)
    assert replica is not None
    return replica


# ---- the high watermark of a leader ---------------------------------------------------------------------


def test_a_new_leader_keeps_the_high_watermark_until_the_rule_raises_it() -> None:
    async def run() -> None:
        disk, cluster = MemoryDisk(), Cluster(NODE, OTHER)
        site = Site(cluster, await open_directory(disk), disk)
        made = create(site)
        log = await site.directory.partition("t", 0, topic_id=UUID(bytes=made.id))
        for _ in range(5):
            await log.append_as_leader(batch(1), 0)
        log.advance_high_watermark(3)
        await site.directory.close()
        site = Site(cluster, await open_directory(disk), disk)
        replica = await site.replicas.leader(made, 0)
        assert (replica.log.high_watermark, replica.log.end_offset) == (3, 5)
        change(site, made, isr=[NODE])
        assert replica.log.high_watermark == 5

    asyncio.run(run())


def test_the_high_watermark_is_what_the_isr_holds() -> None:
    async def work(site: Site) -> None:
        replica = await site.replicas.leader(create(site), 0)
        appended = await site.append(replica, 3)
        wait = replica.committed(appended.last_offset + 1)
        await site.append(replica, 2)
        assert replica.log.high_watermark == 0
        replica.follower_fetched(OTHER, 3)
        assert wait.done()
        assert replica.log.high_watermark == 3
        replica.follower_fetched(OTHER, 1)  # it has lost its disk, perhaps: what was committed remains so
        assert replica.log.high_watermark == 3

    on_a_site(work, NODE, OTHER)


def test_a_smaller_isr_commits_and_wakes() -> None:
    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        await site.append(replica, 3)
        wait, poll = replica.committed(3), LongPoll(len(batch(3)))
        poll.watch(replica.marks)
        change(site, made, isr=[NODE])
        assert replica.log.high_watermark == 3
        assert wait.done()
        assert await poll.wait(0)

    on_a_site(work, NODE, OTHER)


def test_a_replica_more_holds_the_high_watermark_where_it_is() -> None:
    async def work(site: Site) -> None:
        made = site.create("t")
        replica = await site.replicas.leader(made, 0)
        await site.append(replica, 3)
        change(site, made, replicas=[NODE, OTHER], isr=[NODE, OTHER])
        await site.append(replica, 2)
        assert replica.log.high_watermark == 3
        replica.follower_fetched(OTHER, 5)
        assert replica.log.high_watermark == 5
        change(site, made, replicas=[NODE], isr=[NODE])
        await site.append(replica, 1)
        assert replica.log.high_watermark == 6

    on_a_site(work, NODE, OTHER)


def test_nothing_is_committed_under_min_insync_replicas() -> None:
    async def work(site: Site) -> None:
        site.min_in_sync = 2
        made = create(site)
        change(site, made, isr=[NODE])
        replica = await site.replicas.leader(made, 0)
        with pytest.raises(NotEnoughReplicas):
            await site.append(replica)
        await replica.append(memoryview(batch(1)), all_in_sync=False)
        assert replica.log.high_watermark == 0
        change(site, made, isr=[NODE, OTHER])
        replica.follower_fetched(OTHER, 1)
        assert replica.log.high_watermark == 1

    on_a_site(work, NODE, OTHER)


def test_acks_all_waits_for_the_isr_and_acks_1_does_not() -> None:
    async def work(site: Site) -> None:
        made = create(site)
        services: Any = SimpleNamespace(replicas=site.replicas)
        waits: list[Any] = []
        for acks in (1, produce.ALL):
            data = PartitionProduceData(index=0, records=memoryview(batch(1)))
            await produce._append(made, data, acks, True, services, waits, {})
        ((future, response),) = waits
        assert not future.done()
        replica = await site.replicas.leader(made, 0)
        replica.follower_fetched(OTHER, 2)
        await produce.Committing(waits, 60_000, ProduceResponse).wait()
        assert (response.error_code, response.base_offset) == (0, 1)

        waits.clear()
        data = PartitionProduceData(index=0, records=memoryview(batch(1)))
        response = await produce._append(made, data, produce.ALL, True, services, waits, {})
        await produce.Committing(waits, 0, ProduceResponse).wait()
        assert response.error_code == produce.RequestTimedOut.wire.code

    on_a_site(work, NODE, OTHER)


def test_a_request_that_is_cancelled_gives_up_its_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    append, is_waiting = Replica.append, asyncio.Event()

    async def slow_in_the_second(self: Replica, *arguments: Any, **more: Any) -> Appended:
        if self.partition == 1:
            is_waiting.set()
            await asyncio.Event().wait()
        return await append(self, *arguments, **more)

    async def work(site: Site) -> None:
        create(site, partitions=2)
        partitions = [PartitionProduceData(index=each, records=memoryview(batch(1))) for each in range(2)]
        asked = [TopicProduceData(name="t", topic_id=NO_UUID, partition_data=partitions)]
        request = ProduceRequest(acks=produce.ALL, timeout_ms=60_000, topic_data=asked)
        services: Any = SimpleNamespace(replicas=site.replicas)
        context: Any = SimpleNamespace(api_version=9, client_id="test")
        begun = asyncio.ensure_future(produce.begin(request, context, services))
        await is_waiting.wait()
        begun.cancel()
        await asyncio.wait((begun,))
        replica = await site.replicas.leader(site.cluster.image.topics_by_name["t"], 0)
        assert [each[2].cancelled() for each in replica.marks.commits.entries] == [True]

    monkeypatch.setattr(Replica, "append", slow_in_the_second)
    on_a_site(work, NODE, OTHER)


# ---- waiters --------------------------------------------------------------------------------------------


def test_followers_wait_for_the_end_and_consumers_for_the_high_watermark() -> None:
    async def work(site: Site) -> None:
        replica = await site.replicas.leader(create(site), 0)
        follower, consumer = LongPoll(2 * len(batch(1))), LongPoll(2 * len(batch(1)))
        follower.watch_end(replica.marks)
        consumer.watch(replica.marks)
        await site.append(replica)
        replica.follower_fetched(OTHER, 1)  # a high watermark that moves brings no follower anything
        assert not follower.looks_again
        await site.append(replica)
        assert follower.looks_again
        assert not consumer.looks_again
        replica.follower_fetched(OTHER, 2)
        assert consumer.looks_again
        for poll in (follower, consumer):
            assert await poll.wait(0)
        assert not replica.marks.polls
        assert not replica.marks.end_polls

    on_a_site(work, NODE, OTHER)


async def fetched(
    site: Site,
    made: TopicImage,
    offset: int,
    *,
    node: int = -1,
    broker_epoch: int = -1,
    epoch: int = -1,
    last_epoch: int = -1,
    start_offset: int = -1,
    wait_ms: int = 0,
) -> PartitionData:
    """What a node, or a consumer, is answered."""
    services: Any = SimpleNamespace(
        replicas=site.replicas, clock=SystemClock(), fetch_max_bytes=1 << 20, image=site.cluster.image
    )
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=node, replica_epoch=broker_epoch),
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
    )
    ask = FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
        log_start_offset=start_offset,
    )
    context: Any = SimpleNamespace(api_version=17)
    terms = fetch._terms(request, context, services)
    found = await fetch._fetch(request, terms, FetchContext([Want("", made.id, ask)]), services)
    (result,) = found.results
    return result


def test_a_follower_reads_to_the_end_and_tells_what_it_holds() -> None:
    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        await site.append(replica, 2)
        first = await fetched(site, made, 0, node=OTHER)
        assert (first.error_code, first.high_watermark, bool(first.records)) == (0, 0, True)
        assert not (await fetched(site, made, 0)).records
        waiting = asyncio.ensure_future(fetched(site, made, 2, node=OTHER, wait_ms=60_000))
        await until(lambda: replica.marks.end_polls)
        consumed = await fetched(site, made, 0)
        assert (consumed.high_watermark, bool(consumed.records)) == (2, True)
        await site.append(replica)
        second = await waiting
        assert (second.high_watermark, bool(second.records)) == (2, True)
        assert (await fetched(site, made, 3, node=OTHER)).high_watermark == 3  # told with the same answer
        assert (await fetched(site, made, 9, node=OTHER)).error_code == 1  # OFFSET_OUT_OF_RANGE
        assert replica.log.high_watermark == 3

    on_a_site(work, NODE, OTHER)


def test_a_node_without_a_replica_is_refused_as_a_follower() -> None:
    async def work(site: Site) -> None:
        made = create(site)
        for node in (NODE, 7):
            refused = await fetched(site, made, 0, node=node)
            assert refused.error_code == NotLeaderOrFollower.wire.code
            refused = await fetched(site, made, 0, node=node, epoch=0)
            assert refused.error_code == UnknownLeaderEpoch.wire.code

    on_a_site(work, NODE, OTHER)


def test_a_fetch_tells_what_the_follower_holds_only_once() -> None:
    """Time that it waits in the purgatory is no time at which the follower was seen."""

    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        waiting = asyncio.ensure_future(fetched(site, made, 0, node=OTHER, wait_ms=60_000))
        await until(lambda: replica.marks.end_polls)
        site.clock.advance(1)
        await site.append(replica)
        await waiting
        assert replica._leader is not None
        follower = replica._leader.followers[OTHER]
        assert (follower.fetched_at, follower.leader_end) == (0.0, 0)

    on_a_site(work, NODE, OTHER)


def test_a_fetch_of_an_incarnation_that_was_replaced_is_refused() -> None:
    """KAFKA-15221"""

    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        await site.append(replica, 2)
        before = site.cluster.image.brokers[OTHER].epoch
        site.cluster.start(OTHER, incarnation=2)
        refused = await fetched(site, made, 2, node=OTHER, broker_epoch=before)
        assert refused.error_code == NotLeaderOrFollower.wire.code
        assert replica._leader is not None
        assert replica._leader.followers[OTHER].end_offset == UNKNOWN_OFFSET
        assert not site.asked
        taken = await fetched(site, made, 0, node=OTHER, broker_epoch=before + 10)  # not published here yet
        assert taken.error_code == 0

    on_a_site(work, NODE, OTHER)


def test_a_follower_with_another_history_holds_nothing_and_is_told_where_to_cut() -> None:
    """KAFKA-13141, on the leader's side"""

    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        await site.append(replica, 3)  # in epoch 0
        change(site, made, leader=OTHER)
        change(site, made, leader=NODE)
        await site.append(replica, 3)  # in epoch 2
        # the follower has written two records more in epoch 0, or some in epoch 1
        for last_epoch in (0, 1):
            answer = await fetched(site, made, 5, node=OTHER, epoch=2, last_epoch=last_epoch)
            diverging = answer.diverging_epoch
            assert diverging is not None
            assert (diverging.epoch, diverging.end_offset, answer.records) == (0, 3, b"")
            assert replica.log.high_watermark == 0
        unknown = await fetched(site, made, 5, node=OTHER, epoch=2, last_epoch=3)
        assert unknown.error_code == OffsetOutOfRange.wire.code
        found = await fetched(site, made, 3, node=OTHER, epoch=2, last_epoch=0)
        assert (found.diverging_epoch, bool(found.records), found.high_watermark) == (None, True, 3)

    on_a_site(work, NODE, OTHER)


def test_a_follower_that_is_before_the_log_is_out_of_range_whatever_its_history() -> None:
    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        await site.append(replica, 6)
        await fetched(site, made, 6, node=OTHER)
        await delete_records(replica.log, 4)
        change(site, made, leader=OTHER)
        change(site, made, leader=NODE)
        answer = await fetched(site, made, 2, node=OTHER, epoch=2, last_epoch=1)
        assert answer.error_code == OffsetOutOfRange.wire.code

    on_a_site(work, NODE, OTHER)


@pytest.mark.parametrize(("epoch", "error"), [(0, FencedLeaderEpoch), (2, UnknownLeaderEpoch), (1, None)])
def test_epochs_are_compared_wherever_a_partition_is_asked_for(
    epoch: int, error: type[BarnabasError] | None
) -> None:
    """Also by a node that follows: a client with an older epoch than that has missed more than it would."""

    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        change(site, made, leader=OTHER)
        code = (error or NotLeaderOrFollower).wire.code
        assert (await fetched(site, made, 0, epoch=epoch)).error_code == code
        services: Any = SimpleNamespace(replicas=site.replicas)
        ends = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic="t",
                    partitions=[
                        OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
                    ],
                )
            ],
        )
        answer = await offset_for_leader_epoch.handle(ends, SimpleNamespace(), services)  # type: ignore[arg-type]
        assert answer.topics[0].partitions[0].error_code == code
        assert (await listed(site, epoch=epoch))[0] == code
        change(site, made, leader=NODE)
        assert replica.leader_epoch == 2
        assert (await listed(site, epoch=epoch))[0] == (FencedLeaderEpoch.wire.code if epoch < 2 else 0)

    on_a_site(work, NODE, OTHER)


# ---- offsets that consumers are told --------------------------------------------------------------------


async def listed(
    site: Site, timestamp: int = LATEST, *, epoch: int = -1, version: int = 10, replica_id: int = -1
) -> tuple[int, int]:
    """The error and the offset that ListOffsets gives."""
    request = ListOffsetsRequest(
        replica_id=replica_id,
        topics=[
            ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=timestamp)
                ],
            )
        ],
    )
    services: Any = SimpleNamespace(replicas=site.replicas)
    context: Any = SimpleNamespace(api_version=version)
    answer = (await list_offsets.handle(request, context, services)).topics[0].partitions[0]
    return answer.error_code, answer.offset


def test_no_end_is_told_that_may_be_older_than_what_consumers_know() -> None:
    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        await site.append(replica, 3)
        assert await listed(site) == (0, 0)  # in the epoch in which it began
        change(site, made, leader=OTHER)
        change(site, made, leader=NODE)
        not_available = list_offsets.OffsetNotAvailable.wire.code
        for timestamp in (LATEST, MAX_TIMESTAMP, 0, 1 << 60):
            assert await listed(site, timestamp) == (not_available, -1)
        leader_not_available = 5
        assert await listed(site, version=4) == (leader_not_available, -1)
        assert await listed(site, EARLIEST) == (0, 0)
        assert await listed(site, replica_id=OTHER) == (0, 3)
        replica.follower_fetched(OTHER, 3)
        assert await listed(site) == (0, 3)

    on_a_site(work, NODE, OTHER)


def test_a_tool_sees_the_whole_log_of_a_replica_that_follows() -> None:
    """kafka-replica-verification fetches from every replica; who lags by how much is seen so, too."""

    async def work(site: Site) -> None:
        made = create(site, first=OTHER)
        refused = NotLeaderOrFollower.wire.code
        assert (await fetched(site, made, 0, node=DEBUGGER)).error_code == 0  # opened, if need be
        replica = await opened(site, made)
        await following.append(replica.log, memoryview(batch(3)), 0)
        found = await fetched(site, made, 0, node=DEBUGGER, epoch=0)
        assert (found.error_code, found.high_watermark, bool(found.records)) == (0, 0, True)
        assert await listed(site, replica_id=DEBUGGER) == (0, 3)
        assert await listed(site, EARLIEST, replica_id=DEBUGGER) == (0, 0)
        assert await listed(site, replica_id=DEBUGGER, epoch=7) == (UnknownLeaderEpoch.wire.code, -1)
        for node in (-1, NODE):
            assert (await fetched(site, made, 0, node=node)).error_code == refused
            assert await listed(site, replica_id=node) == (refused, -1)
        change(site, made, leader=NODE)
        assert await listed(site, replica_id=DEBUGGER) == (0, 3)
        change(site, made, replicas=[OTHER], isr=[OTHER], leader=OTHER)
        assert await listed(site, replica_id=DEBUGGER) == (refused, -1)

    on_a_site(work, NODE, OTHER)


# ---- deleted records ------------------------------------------------------------------------------------


async def deleting(site: Site, offset: int, timeout_ms: int = 60_000) -> tuple[int, int]:
    """The error and the low watermark that DeleteRecords gives."""
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[asked])], timeout_ms=timeout_ms
    )
    services: Any = SimpleNamespace(replicas=site.replicas)
    answer = await delete_records_handler.handle(request, SimpleNamespace(), services)  # type: ignore[arg-type]
    (result,) = answer.topics[0].partitions
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("offset", [3, -1])
def test_records_are_deleted_when_every_follower_has_deleted_them(offset: int) -> None:
    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        await site.append(replica, 5)
        await fetched(site, made, 3, node=OTHER, start_offset=0)
        waiting = asyncio.ensure_future(deleting(site, offset))
        await until(lambda: replica.marks.deletions)
        assert replica.log.start_offset == 3
        await fetched(site, made, 5, node=OTHER, start_offset=2)
        await asyncio.sleep(0)
        assert not waiting.done()
        await fetched(site, made, 5, node=OTHER, start_offset=3)
        assert await waiting == (0, 3)
        assert await deleting(site, 2) == (0, 3)  # nothing left to be deleted

    on_a_site(work, NODE, OTHER)


def test_a_deletion_waits_no_longer_than_it_is_to() -> None:
    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        await site.append(replica, 5)
        await fetched(site, made, 5, node=OTHER, start_offset=1)
        assert await deleting(site, 3, timeout_ms=0) == (produce.RequestTimedOut.wire.code, 1)
        assert replica.log.start_offset == 3

    on_a_site(work, NODE, OTHER)


def test_a_follower_that_is_fenced_or_removed_holds_no_deletion_up() -> None:
    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        await site.append(replica, 5)
        await fetched(site, made, 5, node=OTHER, start_offset=0)
        waiting = asyncio.ensure_future(deleting(site, 3))
        await until(lambda: replica.marks.deletions)
        epoch = site.cluster.image.brokers[OTHER].epoch
        site.commit(FenceBrokerRecord(id=OTHER, epoch=epoch))
        assert await waiting == (0, 3)
        site.commit(UnfenceBrokerRecord(id=OTHER, epoch=epoch))
        waiting = asyncio.ensure_future(deleting(site, 4))
        await until(lambda: replica.marks.deletions)
        change(site, made, replicas=[NODE], isr=[NODE])
        assert await waiting == (0, 4)

    on_a_site(work, NODE, OTHER)


def test_a_deletion_that_outlives_the_leadership_is_refused() -> None:
    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        await site.append(replica, 5)
        await fetched(site, made, 5, node=OTHER, start_offset=0)
        waiting = asyncio.ensure_future(deleting(site, 3))
        await until(lambda: replica.marks.deletions)
        change(site, made, leader=OTHER)
        assert await waiting == (NotLeaderOrFollower.wire.code, -1)

    on_a_site(work, NODE, OTHER)


# ---- following ------------------------------------------------------------------------------------------


def test_a_following_replica_is_opened_by_its_role() -> None:
    async def work(site: Site) -> None:
        made = create(site, partitions=3, first=OTHER)
        for partition in range(3):
            replica = await opened(site, made, partition)
            assert replica.role == Following(OTHER, 0)
        assert len(site.directory.partitions) == 3
        assert site.replicas.opened(made, 0) is None
        with pytest.raises(NotLeaderOrFollower):
            await site.replicas.leader(made, 0)
        for append in (site.append(replica), replica.append_own(batch(1))):
            with pytest.raises(NotLeaderOrFollower):
                await append
        assert (await fetched(site, made, 0)).error_code == NotLeaderOrFollower.wire.code
        await replica.log.append_as_follower(batch(2, base_offset=0, leader_epoch=0))
        assert (replica.log.high_watermark, replica.log.end_offset) == (0, 2)

    on_a_site(work, NODE, OTHER)


def test_replicas_that_have_others_are_opened_at_a_start() -> None:
    async def run() -> None:
        cluster, disk = Cluster(NODE, OTHER), MemoryDisk()
        cluster.create(topic("t", assigned={0: [OTHER, NODE], 1: [NODE, OTHER]}))
        site = Site(cluster, await open_directory(disk), disk)
        made = cluster.image.topics_by_name["t"]
        cluster.create(topic("alone", assigned={0: [NODE]}))
        site.replicas.open_replicated()
        await opened(site, made, 0)
        await until(lambda: site.replicas.opened(made, 1))
        await site.replicas.close()
        assert site.directory.partitions == [("t", 0), ("t", 1)]

    asyncio.run(run())


def test_a_replica_without_a_leader_is_not_opened() -> None:
    async def work(site: Site) -> None:
        made = create(site, first=OTHER)
        await opened(site, made)
        change(site, made, leader=NO_LEADER)
        replica = site.replicas.followed(made, 0)
        assert replica is not None
        assert replica.role == Following(NO_LEADER, 1)
        other = site.create("u")
        change(site, other, leader=NO_LEADER)
        site.replicas.open_replicated()
        await site.replicas.close()
        assert site.replicas.followed(other, 0) is None
        assert site.directory.partitions == [("t", 0)]

    on_a_site(work, NODE, OTHER)


def test_others_have_their_turn_while_many_are_opened_to_follow() -> None:
    async def work(site: Site) -> None:
        made, turns = create(site, partitions=50, first=OTHER), 0
        while site.replicas.followed(made, 49) is None:
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 50

    on_a_site(work, NODE, OTHER)


def test_a_replica_goes_from_following_to_leading_and_back() -> None:
    async def work(site: Site) -> None:
        made = create(site, first=OTHER)
        replica = await opened(site, made)
        await replica.log.append_as_follower(batch(3, base_offset=0, leader_epoch=0))
        replica.log.advance_high_watermark(1)
        change(site, made, leader=NODE)
        assert site.replicas.opened(made, 0) is replica
        assert site.replicas.followed(made, 0) is None
        assert isinstance(replica.role, Leading)
        assert (replica.log.high_watermark, replica.leader_epoch) == (1, 1)
        entries = [(entry.epoch, entry.start_offset) for entry in replica.log.epochs.entries]
        assert entries == [(0, 0), (1, 3)]  # before anything is written in it
        poll = LongPoll(1000)
        poll.watch(replica.marks)
        replica.follower_fetched(OTHER, 3)
        assert replica.log.high_watermark == 3
        assert poll.looks_again  # how many bytes it brought was not known
        wait = replica.committed(4)
        change(site, made, leader=OTHER)
        assert isinstance(wait.exception(), NotLeaderOrFollower)
        assert site.replicas.opened(made, 0) is None
        assert site.replicas.followed(made, 0) is replica
        with pytest.raises(NotLeaderOrFollower):
            replica.committed(4)
        change(site, made, leader=NODE)
        replica.follower_fetched(OTHER, 2)  # what it held in an earlier leadership is not known any more
        await site.append(replica)
        assert replica.log.high_watermark == 3

    on_a_site(work, NODE, OTHER)


def test_a_node_that_is_no_replica_any_more_serves_nothing() -> None:
    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        change(site, made, replicas=[OTHER], isr=[OTHER], leader=OTHER)
        assert site.replicas.opened(made, 0) is None
        assert site.replicas.followed(made, 0) is None
        with pytest.raises(NotLeaderOrFollower):
            await site.append(replica)

    on_a_site(work, NODE, OTHER)


@pytest.mark.parametrize("is_open", [True, False])
def test_the_files_of_a_replica_that_moved_to_other_nodes_go(is_open: bool) -> None:
    async def work(site: Site) -> None:
        made = create(site, first=OTHER)
        replica = await opened(site, made)
        if not is_open:
            site.replicas._following.clear()
        change(site, made, replicas=[OTHER], isr=[OTHER])
        await site.replicas.close()
        assert site.directory.partitions == []
        assert [name for name in await site.disk.listdir("") if name.endswith("-delete")]
        assert replica.log.ended is not None

    on_a_site(work, NODE, OTHER)


def test_a_replica_that_comes_back_before_its_files_are_gone_is_used_again() -> None:
    async def work(site: Site) -> None:
        made = create(site, first=OTHER)
        first = await opened(site, made)
        await first.log.append_as_follower(batch(3, base_offset=0, leader_epoch=0))
        async with site.directory._turns["t", 0]:  # the removal waits
            change(site, made, replicas=[OTHER], isr=[OTHER])
            await asyncio.sleep(0)
            change(site, made, replicas=[OTHER, NODE])
        second = await opened(site, made)
        await site.replicas.close()
        assert second is not first
        assert second.log.end_offset == 3
        assert second.log.ended is None
        assert site.directory.partitions == [("t", 0)]

    on_a_site(work, NODE, OTHER)


def test_an_offline_replica_answers_with_a_storage_error() -> None:
    async def work(site: Site) -> None:
        made, failed = create(site, partitions=2), StorageError("its disk failed")
        replica = await site.replicas.leader(made, 0)
        wait = replica.committed(1)
        for partition in (0, 1):
            site.replicas.take_offline("t", partition, failed)
            with pytest.raises(StorageError):
                await site.replicas.leader(made, partition)
        assert wait.exception() is failed
        with pytest.raises(StorageError):
            await site.append(replica)
        change(site, made, 1, leader=OTHER)
        site.replicas.open_replicated()
        await site.replicas.close()
        assert site.directory.partitions == [("t", 0)]  # what is offline is not opened to follow either

    on_a_site(work, NODE, OTHER)


def test_a_replica_that_cannot_be_opened_to_follow_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(replicas_module, "OPEN_AGAIN_SECONDS", 0.0)

    async def work(site: Site) -> None:
        site.disk.fail("mkdir", errno.EMFILE, path_glob="t-0*", times=2)
        made = create(site, partitions=2, first=OTHER)
        await opened(site, made, 1)  # the other is not in the way
        await opened(site, made, 0)
        assert not site.failures

    on_a_site(work, NODE, OTHER)
    assert len([each for each in caplog.records if "cannot be opened" in each.getMessage()]) == 2


# ---- appends that outlive their epoch -------------------------------------------------------------------


@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("leader", [NODE, OTHER])
def test_an_append_that_waits_for_its_turn_is_not_of_an_epoch_that_is_over(leader: int, is_own: bool) -> None:
    async def work(site: Site) -> None:
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        async with replica.log.turn:
            append = asyncio.ensure_future(
                replica.append_own(batch(1)) if is_own else site.append(replica)  # type: ignore[arg-type]
            )
            await asyncio.sleep(0)
            change(site, made, leader=leader)
        if leader == NODE and not is_own:
            await append
            assert [(entry.epoch, entry.start_offset) for entry in replica.log.epochs.entries] == [(1, 0)]
        else:
            with pytest.raises(NotLeaderOrFollower):
                await append
            assert replica.log.end_offset == 0

    on_a_site(work, NODE, OTHER)


@pytest.mark.parametrize("all_in_sync", [False, True])
def test_an_append_whose_leadership_ends_while_it_is_synced(all_in_sync: bool) -> None:
    async def work(site: Site) -> None:
        site.config = LogConfig(flush_messages=1)
        made = create(site)
        replica = await site.replicas.leader(made, 0)
        synced = asyncio.Event()

        async def flush(log: PartitionLog, up_to: int) -> None:
            await synced.wait()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PartitionLog, "flush", flush)
            append = asyncio.ensure_future(replica.append(memoryview(batch(1)), all_in_sync=all_in_sync))
            await asyncio.sleep(0)
            change(site, made, leader=OTHER)
            change(site, made, leader=NODE, isr=[NODE])  # it may have been truncated in between
            synced.set()
            if all_in_sync:
                with pytest.raises(NotLeaderOrFollower):
                    await append
            else:
                assert (await append).last_offset == 0

    on_a_site(work, NODE, OTHER)
