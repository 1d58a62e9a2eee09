"""A follower's fetch session: partitions at rest are not read, and nothing that happens to them is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers import fetch
from barnabas.broker.replicas.fetch_sessions import FetchSessions
from barnabas.broker.replicas.follower_reads import READ_ALL_S
from barnabas.broker.replicas.replica import Replica
from barnabas.core.random import SeededRandom
from barnabas.log import trimming
from barnabas.metadata.parts import TopicImage
from barnabas.metadata.records import FenceBrokerRecord, PartitionChangeRecord
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from barnabas.protocol.schema import NO_UUID
from tests.broker.test_replicas import LAG_S, NODE, Site, on_a_site, until
from tests.controller.clusters import topic
from tests.support.logs import batch

A, B = 2, 3  # the followers
PARTITIONS = 3
LONG_MS = 60_000


class Follower:
    """A follower of all partitions of a topic, by requests to the handler."""

    def __init__(self, site: Site, made: TopicImage, sessions: FetchSessions, node_id: int) -> None:
        self.site, self.made, self.node_id = site, made, node_id
        self.services: Any = SimpleNamespace(
            replicas=site.replicas,
            clock=site.clock,
            fetch_max_bytes=1 << 20,
            sessions=sessions,
            traffic=None,
        )
        self.ends = [0] * PARTITIONS
        self.named = list(range(PARTITIONS))
        self.session_id = self.epoch = 0

    async def fetch(self, wait_ms: int = 0) -> dict[int, PartitionData]:
        """Ask for what has changed, and take over what is answered; the answers by partition."""
        self.services.image = image = self.site.cluster.image
        state = ReplicaState(replica_id=self.node_id, replica_epoch=image.brokers[self.node_id].epoch)
        asked = [self._ask(each) for each in self.named]
        self.named = []
        request = FetchRequest(
            replica_state=state,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic="", topic_id=self.made.id, partitions=asked)] if asked else [],
            forgotten_topics_data=[],
        )
        context: Any = SimpleNamespace(api_version=17, listener="PLAINTEXT")
        response: FetchResponse = await fetch.handle(request, context, self.services)
        assert response.error_code == 0
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        found = {one.partition_index: one for each in response.responses for one in each.partitions}
        for number, data in found.items():
            if data.records:
                self.ends[number] = self._replica(number).log.end_offset
                self.named.append(number)
        return found

    def _replica(self, partition: int) -> Replica:
        replica = self.site.replicas.opened(self.made, partition)
        assert replica is not None
        return replica

    def _ask(self, partition: int) -> FetchPartition:
        log = self._replica(partition).log
        return FetchPartition(
            partition=partition,
            fetch_offset=self.ends[partition],
            partition_max_bytes=1 << 20,
            current_leader_epoch=0,
            last_fetched_epoch=-1,
            log_start_offset=log.start_offset,
            replica_directory_id=NO_UUID,
        )


Work = Callable[[Site, list[Replica], Follower, Follower], Awaitable[None]]


def followed(work: Work, *, is_at_rest: bool = True) -> None:
    """Run with three partitions that this node leads, and two followers that have everything."""

    async def on(site: Site) -> None:
        site.cluster.create(topic("t", assigned={each: [NODE, A, B] for each in range(PARTITIONS)}))
        made = site.cluster.image.topics_by_name["t"]
        replicas = [await site.replicas.leader(made, each) for each in range(PARTITIONS)]
        sessions = FetchSessions(site.clock, SeededRandom(1), 10)
        first, second = Follower(site, made, sessions, A), Follower(site, made, sessions, B)
        for _ in range(3 if is_at_rest else 0):
            for each in (first, second):
                await each.fetch()
        await work(site, replicas, first, second)

    on_a_site(on, NODE, A, B)


@contextmanager
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[int]]]:
    """The partitions that are read, look by look."""
    looks: list[list[int]] = []
    read = fetch._read_partitions

    def counted(wants: Any, *arguments: Any, **more: Any) -> Coroutine[Any, Any, Any]:
        looks.append([each.ask.partition for each in wants])
        return read(wants, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "_read_partitions", counted)
        yield looks


def test_partitions_at_rest_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        with reads(monkeypatch) as looks:
            await one.fetch()
            assert looks == [[]]
            await site.append(replicas[1])
            await one.fetch()
            assert looks == [[], [1]]
            await one.fetch()  # it holds the record, and others do not yet
            await one.fetch()
            assert looks == [[], [1], [1], []]

    followed(work)


def test_an_append_wakes_a_request_that_waits() -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        waiting = asyncio.ensure_future(one.fetch(LONG_MS))
        await asyncio.sleep(0)
        await site.append(replicas[2], 3)
        assert list(await waiting) == [2]
        assert one.ends == [0, 0, 3]

    followed(work)


def test_a_new_high_watermark_is_told_and_wakes_nobody() -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        await site.append(replicas[1])
        for _ in range(3):
            await one.fetch()
        waiting = asyncio.ensure_future(one.fetch(LONG_MS))
        await asyncio.sleep(0)
        await other.fetch()
        await other.fetch()
        assert replicas[1].log.high_watermark == 1
        await asyncio.sleep(0)
        assert not waiting.done()
        await site.append(replicas[1])  # although the high watermark has woken that partition before
        told = await waiting
        assert told[1].high_watermark == 1
        assert one.ends == [0, 2, 0]

    followed(work)


def test_what_is_appended_while_others_are_read_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        read = fetch._read_partitions

        async def and_append(*arguments: Any, **more: Any) -> Any:
            found = await read(*arguments, **more)
            if more["is_first"]:
                await site.append(replicas[0])
            return found

        monkeypatch.setattr(fetch, "_read_partitions", and_append)
        assert list(await one.fetch(LONG_MS)) == [0]

    followed(work)


def test_a_follower_that_fetches_partitions_at_rest_is_caught_up() -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        for _ in range(20):
            site.clock.advance(READ_ALL_S - 1)
            await one.fetch()
        await site.append(replicas[0])
        site.clock.advance(1.0)
        replicas[0].check_lag()
        (asked,) = site.asked
        assert [each.node_id for each in asked.isr] == [NODE, A]  # the other one was silent

    followed(work)


def test_followers_at_rest_do_not_lag_while_an_append_is_synced() -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        site.context.lag_s = 2.0
        for _ in range(4):
            site.clock.advance(1.0)
            await one.fetch()
            await other.fetch()
        await replicas[0].log.append_as_leader(batch(1), 0)  # the replica counts it once it is synced
        replicas[0].check_lag()
        assert not site.asked
        site.clock.advance(3.0)
        replicas[0].check_lag()
        (asked,) = site.asked
        assert [each.node_id for each in asked.isr] == [NODE]

    followed(work)


def test_a_follower_that_goes_back_is_caught_up_no_more() -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        await site.append(replicas[0], 2)
        for _ in range(3):
            await one.fetch()
            await other.fetch()
        site.clock.advance(LAG_S)
        one.ends[0], one.named = 1, [0]
        await one.fetch()
        await other.fetch()
        await site.append(replicas[0])
        site.clock.advance(1.0)
        replicas[0].check_lag()
        (asked,) = site.asked
        assert [each.node_id for each in asked.isr] == [NODE, B]

    followed(work)


@pytest.mark.parametrize(
    "changed", [{"leader": NODE, "isr": [NODE, A]}, {"isr": [NODE, A, B], "leader": NODE}]
)
def test_another_role_is_looked_at(monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]) -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        site.commit(PartitionChangeRecord(partition_id=1, topic_id=one.made.id, **changed))
        with reads(monkeypatch) as looks:
            answers = await one.fetch()
        assert looks == [[1]]
        assert answers[1].error_code  # of an epoch that is over

    followed(work)


def test_followers_out_of_the_isr_are_looked_at_until_they_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        site.commit(PartitionChangeRecord(partition_id=1, topic_id=one.made.id, isr=[NODE, A]))
        await other.fetch()
        (asked,) = site.asked
        assert [each.node_id for each in asked.isr] == [NODE, A, B]
        with reads(monkeypatch) as looks:
            await other.fetch()
        assert looks == [[1]]

    followed(work)


def test_all_is_looked_at_when_the_registration_of_the_follower_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        epoch = site.cluster.image.brokers[A].epoch
        site.commit(FenceBrokerRecord(id=A, epoch=epoch))
        with reads(monkeypatch) as looks:
            await one.fetch()
        assert looks == [[0, 1, 2]]

    followed(work)


def test_deletions_are_told_at_once_and_retention_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        await site.append(replicas[0], 5)
        for _ in range(4):
            await one.fetch()
            await other.fetch()
        await trimming.delete_records(replicas[0].log, 2)
        assert 0 not in await one.fetch()
        replicas[0].started_later()
        assert (await one.fetch())[0].log_start_offset == 2
        await one.fetch()
        await trimming.delete_records(replicas[0].log, 3)
        assert 0 not in await one.fetch()
        site.clock.advance(READ_ALL_S)
        assert (await one.fetch())[0].log_start_offset == 3

    followed(work)


def test_a_partition_that_is_forgotten_is_left_alone() -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        (session,) = (each for each in one.services.sessions._sessions.values() if each.id == one.session_id)
        known = next(iter(session.partitions.values()))
        assert replicas[0].marks.resting[A] is known.resting
        session.reads.forget(known)
        assert A not in replicas[0].marks.resting
        await site.append(replicas[0])
        assert await one.fetch() == {}

    followed(work)


def test_the_end_of_a_leadership_wakes_a_request_that_waits() -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        waiting = asyncio.ensure_future(one.fetch(LONG_MS))
        await asyncio.sleep(0)
        site.commit(PartitionChangeRecord(partition_id=1, topic_id=one.made.id, leader=B))
        assert (await waiting)[1].error_code
        site.replicas.wake_readers()
        waiting = asyncio.ensure_future(one.fetch(LONG_MS))
        await asyncio.sleep(0)
        site.replicas.wake_readers()
        await until(waiting.done)

    followed(work)


def test_a_request_of_an_earlier_session_ends_late() -> None:
    async def work(site: Site, replicas: list[Replica], one: Follower, other: Follower) -> None:
        await one.fetch()
        given_up = asyncio.ensure_future(one.fetch(LONG_MS))
        await asyncio.sleep(0)
        later = Follower(site, one.made, one.services.sessions, A)
        for _ in range(3):
            site.clock.advance(0.1)
            await later.fetch()
        await site.append(replicas[2])
        await given_up  # has told that nothing came to the others
        await site.append(replicas[0])
        assert set(await later.fetch()) == {0, 2}

    followed(work, is_at_rest=False)
