"""Replicas follow the metadata: opened once, led in the right epoch, gone with their topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replicas.changes import follow
from barnabas.broker.replicas.leader_context import LeaderContext
from barnabas.broker.replicas.partition_changes import PartitionChange
from barnabas.broker.replicas.purgatory import LongPoll
from barnabas.broker.replicas.replica import NotEnoughReplicas, Replica, UnknownLeaderEpoch
from barnabas.broker.replicas.replicas import (
    Replicas,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.broker.replicas.roles import NotLeaderOrFollower
from barnabas.broker.settings.current_settings import TopicSettings
from barnabas.core.clock import ManualClock
from barnabas.core.errors import BarnabasError, FencedLeaderEpoch, InvariantViolation
from barnabas.core.memory_disk import MemoryDisk
from barnabas.log.config import LogConfig
from barnabas.log.directories import LogDirectories
from barnabas.log.directory import LogDirectory
from barnabas.log.partition import Appended, PartitionLog
from barnabas.metadata.parts import TopicImage
from barnabas.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from barnabas.protocol.schema import Message
from tests.controller.clusters import Cluster, topic
from tests.support.logs import batch, open_directory, read_all

NODE, OTHER = 1, 2
LAG_S = 30.0


class Site:
    """A node's replicas on a disk in memory, under the metadata of a cluster."""

    def __init__(self, cluster: Cluster, directory: LogDirectory, disk: MemoryDisk) -> None:
        self.cluster, self.directory, self.disk = cluster, directory, disk
        self.min_in_sync = 1
        self.config = LogConfig()
        self.failures: list[BaseException] = []
        self.clock = ManualClock()  # by which followers are caught up, or lag behind
        self.asked: list[PartitionChange] = []  # of the controller, which does not answer by itself
        self.context = LeaderContext(
            NODE,
            cluster.metadata,
            self.clock,
            LAG_S,
            submit=self.asked.append,
            broker_epoch=lambda: cluster.image.brokers[NODE].epoch,
        )
        self.replicas = Replicas(
            NODE,
            cluster.metadata,
            LogDirectories({UUID(int=1): directory}),
            self._settings_of,
            self.failures.append,
            self.context,
        )
        follow(cluster.metadata, self.replicas)

    def _settings_of(self, _: str) -> TopicSettings:
        return TopicSettings(self.config, self.min_in_sync)

    def commit(self, *records: Message) -> None:
        self.cluster.append(records)

    def create(self, name: str, partitions: int = 1) -> TopicImage:
        (result,) = self.cluster.create(
            topic(name, assigned={number: [NODE] for number in range(partitions)})
        )
        assert result.error_code == 0
        found = self.cluster.image.topic(name)
        assert found is not None
        return found

    def delete(self, name: str) -> None:
        found = self.cluster.image.topic(name)
        assert found is not None
        self.commit(RemoveTopicRecord(topic_id=found.id))

    async def append(self, replica: Replica, count: int = 1) -> Appended:
        return await replica.append(memoryview(batch(count)), all_in_sync=True)


def on_a_site(work: Callable[[Site], Coroutine[object, object, None]], *brokers: int) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        directory = await open_directory(disk)
        site = Site(Cluster(*(brokers or (NODE,))), directory, disk)
        await work(site)
        await site.replicas.close()
        await directory.close()

    asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    """Let others have their turn until something holds."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came")


def test_a_replica_is_opened_when_it_is_first_touched_and_once() -> None:
    async def work(site: Site) -> None:
        made = site.create("t", 3)
        assert len(site.replicas) == 0
        assert site.directory.partitions == []
        assert site.replicas.opened(made, 1) is None
        found = await asyncio.gather(*(site.replicas.leader(made, 1) for _ in range(5)))
        assert all(one is found[0] for one in found)
        assert site.replicas.opened(made, 1) is found[0]
        assert site.directory.partitions == [("t", 1)]
        assert len(site.replicas) == 1

    on_a_site(work)


def test_others_have_their_turn_while_many_are_opened() -> None:
    async def work(site: Site) -> None:
        made, turns = site.create("t", 50), 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.get_running_loop().create_task(other())
        for partition in range(50):
            await site.replicas.leader(made, partition)
        task.cancel()
        assert turns >= 50

    on_a_site(work)


def test_what_does_not_exist_is_not_made() -> None:
    async def work(site: Site) -> None:
        made = site.create("t")
        with pytest.raises(UnknownTopicOrPartition):
            site.replicas.topic("other", bytes(16), by_id=False)
        with pytest.raises(UnknownTopicId):
            site.replicas.topic("t", bytes(16), by_id=True)
        assert site.replicas.topic("", made.id, by_id=True) is made
        assert site.replicas.topic("t", bytes(16), by_id=False) is made
        for partition in (1, -1, 2**31 - 1):
            with pytest.raises(UnknownTopicOrPartition):
                await site.replicas.leader(made, partition)
        assert site.directory.partitions == []

    on_a_site(work)


def test_a_partition_that_another_node_leads_is_not_opened_here() -> None:
    async def work(site: Site) -> None:
        made = site.create("t")
        site.commit(PartitionChangeRecord(partition_id=0, topic_id=made.id, replicas=[2], isr=[2], leader=2))
        with pytest.raises(NotLeaderOrFollower):
            await site.replicas.leader(made, 0)
        assert site.directory.partitions == []

    on_a_site(work, NODE, 2)


def test_the_high_watermark_follows_the_end_of_the_only_replica() -> None:
    async def work(site: Site) -> None:
        replica = await site.replicas.leader(site.create("t"), 0)
        waits = [replica.marks.committed(offset) for offset in (1, 4, 5)]
        assert (await site.append(replica, 3)).first_offset == 0
        assert replica.log.high_watermark == 3
        assert [wait.done() for wait in waits] == [True, False, False]
        await site.append(replica)
        assert [wait.done() for wait in waits] == [True, True, False]
        site.delete("t")
        assert isinstance(waits[2].exception(), UnknownTopicOrPartition)

    on_a_site(work)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_what_must_be_synced_is_committed_no_sooner(order: tuple[int, int]) -> None:
    """Two appends wait for their syncs (flush.messages=1): each is seen when its own is done."""

    async def work(site: Site) -> None:
        site.config = LogConfig(flush_messages=1)
        replica = await site.replicas.leader(site.create("t"), 0)
        synced = {1: asyncio.Event(), 2: asyncio.Event()}

        async def flush(log: PartitionLog, up_to: int) -> None:
            await synced[up_to].wait()

        poll = LongPoll(2 * len(batch(1)))
        poll.watch(replica.marks)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PartitionLog, "flush", flush)
            appends = {end: asyncio.ensure_future(site.append(replica)) for end in synced}
            await asyncio.sleep(0)
            for end in order:
                assert replica.log.end_offset == 2
                assert replica.log.high_watermark == (0 if end == order[0] else order[0])
                synced[end].set()
                await appends[end]
        assert replica.log.high_watermark == 2
        assert await poll.wait(0)  # both were counted

    on_a_site(work)


def test_a_batch_sent_again_is_committed_where_its_first_sender_was_cut_off() -> None:
    async def work(site: Site) -> None:
        replica = await site.replicas.leader(site.create("t"), 0)
        sent = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        await replica.log.append_as_leader(memoryview(batch(1, **sent)), 0)  # and nobody took note
        assert replica.log.high_watermark == 0
        again = await replica.append(memoryview(batch(1, **sent)), all_in_sync=True)
        assert again.is_duplicate
        assert replica.log.high_watermark == 1

    on_a_site(work)


def test_after_a_crash_everything_in_the_log_is_committed() -> None:
    async def run() -> None:
        disk, cluster = MemoryDisk(), Cluster(NODE)
        directory = await open_directory(disk)
        site = Site(cluster, directory, disk)
        replica = await site.replicas.leader(site.create("t"), 0)
        await site.append(replica, 3)
        disk.crash_process()
        directory = await open_directory(disk)
        again = Site(cluster, directory, disk)
        made = cluster.image.topic("t")
        assert made is not None
        replica = await again.replicas.leader(made, 0)
        assert (replica.log.high_watermark, replica.log.end_offset) == (3, 3)
        assert (await again.append(replica)).first_offset == 3

    asyncio.run(run())


def test_too_few_in_sync_replicas_refuse_acks_all_only() -> None:
    async def work(site: Site) -> None:
        site.min_in_sync = 2
        made = site.create("t")
        alone = await site.replicas.leader(made, 0)
        await site.append(alone)  # a topic of one replica needs no more than that
        site.commit(
            PartitionChangeRecord(partition_id=0, topic_id=made.id, replicas=[1, 2], isr=[1], leader=NODE)
        )
        replica = site.replicas.opened(made, 0)
        assert replica is alone
        with pytest.raises(NotEnoughReplicas):
            await site.append(alone)
        assert (await alone.append(memoryview(batch(1)), all_in_sync=False)).first_offset == 1

    on_a_site(work, NODE, 2)


def test_leader_epochs_are_checked_and_begun() -> None:
    async def work(site: Site) -> None:
        made = site.create("t")
        replica = await site.replicas.leader(made, 0)
        await site.append(replica, 2)
        site.commit(PartitionChangeRecord(partition_id=0, topic_id=made.id, leader=NODE))
        epoch = site.cluster.image.topics_by_id[made.id].partitions[0].leader_epoch
        assert epoch == 1
        assert replica.leader_epoch == 1
        for known, error in ((0, FencedLeaderEpoch), (2, UnknownLeaderEpoch)):
            with pytest.raises(error):
                replica.check_epoch(known)
        replica.check_epoch(1)
        replica.check_epoch(-1)
        await site.append(replica)
        epochs = [(entry.epoch, entry.start_offset) for entry in replica.log.epochs.entries]
        assert epochs == [(0, 0), (1, 2)]

    on_a_site(work)


def test_whoever_waits_is_told_when_another_node_takes_over() -> None:
    async def work(site: Site) -> None:
        made = site.create("t")
        replica = await site.replicas.leader(made, 0)
        wait = replica.marks.committed(10)
        site.commit(PartitionChangeRecord(partition_id=0, topic_id=made.id, leader=2))
        assert isinstance(wait.exception(), NotLeaderOrFollower)
        assert site.replicas.opened(made, 0) is None
        with pytest.raises(NotLeaderOrFollower):
            await site.replicas.leader(made, 0)

    on_a_site(work, NODE, 2)


def test_new_settings_reach_replicas_that_are_open() -> None:
    async def work(site: Site) -> None:
        made = site.create("t")
        replica = await site.replicas.leader(made, 0)
        site.config = LogConfig(max_message_bytes=50)
        site.commit(PartitionChangeRecord(partition_id=0, topic_id=made.id))
        with pytest.raises(BarnabasError) as caught:
            await site.append(replica)
        assert caught.value.wire.name == "MESSAGE_TOO_LARGE"

    on_a_site(work)


# ---- deleted topics -------------------------------------------------------------------------------------


def test_a_topic_made_anew_begins_empty() -> None:
    async def work(site: Site) -> None:
        for _ in range(3):
            made = site.create("t")
            replica = await site.replicas.leader(made, 0)
            assert (await site.append(replica)).first_offset == 0
            site.delete("t")
        # without a pause in between, and with everybody at once
        made = site.create("t")
        first, second = await asyncio.gather(*(site.replicas.leader(made, 0) for _ in range(2)))
        assert first is second
        assert first.log.end_offset == 0
        assert first.log.topic_id == UUID(bytes=made.id)

    on_a_site(work)


def test_an_unexpected_error_of_a_removal_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(site: Site) -> None:
        await site.replicas.leader(site.create("t"), 0)
        violation = InvariantViolation("for a test")

        async def fail(*_: object, **__: object) -> None:
            raise violation

        monkeypatch.setattr(LogDirectory, "delete_partition", fail)
        site.delete("t")
        await site.replicas.close()
        assert site.failures == [violation]

    on_a_site(work)


def test_a_removal_that_comes_late_spares_the_new_topic() -> None:
    """Deleted and made anew in one step, and written to before the removal has begun."""

    async def work(site: Site) -> None:
        old = await site.replicas.leader(site.create("t"), 0)
        await site.append(old, 5)
        site.delete("t")
        replica = await site.replicas.leader(site.create("t"), 0)
        await site.append(replica, 2)
        await site.replicas.close()
        assert (await site.append(replica)).first_offset == 2
        assert len(await read_all(replica.log)) == 3
        with pytest.raises(BarnabasError):
            await site.append(old)

    on_a_site(work)


def test_a_request_that_still_knows_a_deleted_topic_does_not_bring_it_back() -> None:
    async def work(site: Site) -> None:
        old = site.create("t", 2)
        await site.replicas.leader(old, 0)
        site.delete("t")
        await site.replicas.close()
        for partition in (0, 1):
            with pytest.raises(UnknownTopicOrPartition):
                await site.replicas.leader(old, partition)
        assert site.directory.partitions == []
        new = site.create("t", 2)
        for partition in (0, 1):
            replica = await site.replicas.leader(new, partition)
            assert (await site.append(replica)).first_offset == 0
            with pytest.raises(UnknownTopicOrPartition):
                await site.replicas.leader(old, partition)

    on_a_site(work)


def test_files_of_a_deleted_topic_that_a_crash_left_do_not_stand_in_the_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Deleted and made anew, and then the process died before the files were gone."""

    async def work(site: Site) -> None:
        old = UUID(int=7)
        left = await site.directory.partition("t", 0, topic_id=old)
        await left.append_as_leader(memoryview(batch([b"old"])), 0)
        made = site.create("t")
        assert UUID(bytes=made.id) != old
        await site.replicas.set_strays_aside()
        found = await asyncio.gather(*(site.replicas.leader(made, 0) for _ in range(3)))
        assert all(one is found[0] for one in found)
        assert found[0].log.end_offset == 0
        await site.append(found[0])
        assert await site.replicas.leader(made, 0) is found[0]
        assert [record.value for record in await read_all(found[0].log)] == [b"v0"]
        assert [name for name in await site.disk.listdir("") if name.endswith("-stray")]

    on_a_site(work)
    assert len([r for r in caplog.records if "deleted" in r.getMessage()]) == 1


def test_strays_are_set_aside_but_not_the_metadata() -> None:
    async def work(site: Site) -> None:
        site.create("t")
        site.cluster.create(topic("elsewhere", assigned={0: [OTHER]}))
        strays = (("t", 5), ("gone", 0), ("elsewhere", 0))
        for name, partition in (("t", 0), ("__cluster_metadata", 0), *strays):
            await site.directory.partition(name, partition)
        await site.replicas.set_strays_aside()
        assert site.directory.partitions == [("__cluster_metadata", 0), ("t", 0)]
        assert len([name for name in await site.disk.listdir("") if name.endswith("-stray")]) == 3

    on_a_site(work, NODE, OTHER)


STEPS = st.lists(
    st.sampled_from(["create", "delete", "append", "append old", "crash", "rest"]), min_size=1, max_size=25
)


@given(STEPS)
@settings(max_examples=60)
def test_any_history_of_a_name_keeps_topics_apart(steps: list[str]) -> None:
    """A model: the records of the topic that has the name now, and nothing of those before it."""

    async def run() -> None:
        disk, cluster = MemoryDisk(), Cluster(NODE)
        site = Site(cluster, await open_directory(disk), disk)
        expected: int | None = None
        old: TopicImage | None = None
        for step in steps:
            now = cluster.image.topic("t")
            if step == "create" and now is None:
                site.create("t")
                expected = 0
            elif step == "delete" and now is not None:
                old, expected = now, None
                site.delete("t")
            elif step == "append" and now is not None:
                assert expected is not None
                appended = await site.append(await site.replicas.leader(now, 0))
                assert appended.first_offset == expected
                expected += 1
            elif step == "append old" and old is not None:
                with pytest.raises(UnknownTopicOrPartition):
                    await site.replicas.leader(old, 0)
            elif step == "crash":
                for task in site.replicas._removals:
                    task.cancel()
                await asyncio.gather(*site.replicas._removals, return_exceptions=True)
                disk.crash_process()
                site = Site(cluster, await open_directory(disk), disk)
                await site.replicas.set_strays_aside()
            elif step == "rest":
                await site.replicas.close()
        now = cluster.image.topic("t")
        if now is not None:
            assert expected is not None
            assert (await site.replicas.leader(now, 0)).log.end_offset == expected
        await site.replicas.close()

    asyncio.run(run())
