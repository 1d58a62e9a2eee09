"""Clients that ask: where partitions begin and end, what stands at a time, where an epoch ended."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.client.admin import Admin
from barnabas.client.errors import BrokerNotReachable, broker_error, wire_error_of
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.sim.chance import happens, pick
from barnabas.sim.history import LARGEST_TIME, NO_EPOCH, EpochLookedUp, OffsetSeen, TimeLookedUp
from barnabas.sim.scenario import TopicPlan
from barnabas.sim.workload.client import CLIENT, Client

NEAR_MS = 3
LARGEST = 0.2  # the part of questions for a time that is for the largest
TOPIC_TIMEOUT_S = 4.0


async def run_asker(client: Client, topics: Sequence[TopicPlan], pause_s: float) -> None:
    """Ask one thing after another until asked to stop."""
    async with Admin(*client.seams, CLIENT) as admin:
        asker = _Asker(client, admin, topics)
        while not client.stopping.is_set():
            questions = (asker.ends, asker.ends, asker.starts, asker.time, asker.time, asker.epoch)
            question = pick(client.random, questions)
            await client.go_on(f"asking for {question.__name__}", question)
            await client.pause(pause_s)


class _Asker:
    def __init__(self, client: Client, admin: Admin, topics: Sequence[TopicPlan]) -> None:
        self._client, self._admin, self._topics = client, admin, topics

    async def ends(self) -> None:
        await self._offsets("end", LATEST)

    async def starts(self) -> None:
        await self._offsets("start", EARLIEST)

    async def _offsets(self, kind: str, at: int) -> None:
        client, topic = self._client, pick(self._client.random, self._topics)
        asked_at = client.now
        wanted = {(topic.name, each): at for each in range(topic.partitions)}
        asked_of = self._epochs(topic)
        for place, found in (await self._admin.list_offsets(wanted)).items():
            epoch = max(asked_of[place.partition], found.leader_epoch if at == LATEST else NO_EPOCH)
            seen = OffsetSeen(client.now, asked_at, client.name, *place, kind, found.offset, epoch)
            client.history.add(seen)

    def _epochs(self, topic: TopicPlan) -> list[int]:
        """The epochs of the leaders, as far as known: those of an earlier one do not answer."""
        leaders = [self._admin.cluster.leader(topic.name, each) for each in range(topic.partitions)]
        return [NO_EPOCH if leader is None else leader.epoch for leader in leaders]

    async def time(self) -> None:
        """A time at or near that of some record, or of none yet; or the largest."""
        client, topic = self._client, pick(self._client.random, self._topics)
        known = client.seen.timestamps.get(topic.name) or [client.clock.wall_ms()]
        time_ms = max(0, pick(client.random, known) + client.random.below(2 * NEAR_MS) - NEAR_MS)
        if happens(client.random, LARGEST):
            time_ms = LARGEST_TIME
        asked_at = client.now
        wanted = {(topic.name, each): time_ms for each in range(topic.partitions)}
        asked_of = self._epochs(topic)
        for place, found in (await self._admin.list_offsets(wanted)).items():
            epoch = asked_of[place.partition]
            looked_up = TimeLookedUp(client.now, asked_at, client.name, *place, time_ms, *found, epoch)
            client.history.add(looked_up)

    async def epoch(self) -> None:
        """An epoch that was seen, or the next one."""
        client, topic = self._client, pick(self._client.random, self._topics)
        asked_epoch = client.random.below(client.seen.leader_epoch + 2)
        partition = client.random.below(topic.partitions)
        cluster = self._admin.cluster
        await cluster.topic(topic.name, TOPIC_TIMEOUT_S)
        leader = cluster.leader(topic.name, partition)
        if leader is None:
            cluster.refresh_soon()
            raise BrokerNotReachable(f"nobody leads {topic.name}-{partition}")
        # of one broker alone nothing is asked that would be refused after a start
        known_epoch = NO_EPOCH if client.world.scenario.cluster is None else leader.epoch
        asked = OffsetForLeaderPartition(
            partition=partition, leader_epoch=asked_epoch, current_leader_epoch=known_epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-2, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[asked])]
        )
        asked_at = client.now
        response = await cluster.ask(request, OffsetForLeaderEpochResponse, node_id=leader.node_id)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            if known_epoch != NO_EPOCH:
                cluster.refresh_soon()
            raise broker_error(wire_error_of(answer.error_code), f"no epoch of {topic.name}-{partition}")
        client.history.add(
            EpochLookedUp(
                client.now,
                asked_at,
                client.name,
                topic.name,
                partition,
                asked_epoch,
                answer.leader_epoch,
                answer.end_offset,
                known_epoch,
            )
        )
