"""Clients that read: some stay at the end, some begin anew again and again, at the start or at a time.

A session is one reader's way through one partition, from a known offset on; whatever makes the way uncertain
(an error, an offset that is not there any more) ends it, and the next begins. The end to be reached is asked
for after the session began, so that a session which reaches it has seen everything known before it began.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.consumer import Consumer, ConsumerConfig, Reset
from barnabas.client.fetched import ConsumerRecord
from barnabas.client.metadata import TopicPartition
from barnabas.sim.chance import between, happens, pick
from barnabas.sim.history import Polled, Read, SessionBegan, SessionEnded
from barnabas.sim.scenario import TopicPlan
from barnabas.sim.workload.client import CLIENT, Client, kept

POLL_MS = 1_000
ROTATE_S = 12.0
PATIENCE_S = 15.0
PARTITION_MAX_BYTES = (2_000, 50_000, 1 << 20)
AT_A_TIME = 0.25  # how often one who begins anew begins at a time
A_RECORD_S = 0.02  # rest after each record read again, so that a long log is not read all the time


def make_consumer(
    client: Client,
    partition_max_bytes: int,
    fetch_max_wait_ms: int = 500,
    *,
    read_committed: bool = False,
) -> Consumer:
    config = ConsumerConfig(
        reset=Reset.NONE,
        fetch_max_wait_ms=fetch_max_wait_ms,
        partition_max_bytes=partition_max_bytes,
        read_committed=read_committed,
        max_poll_records=1_000_000,
        default_timeout_ms=8_000,
        client=CLIENT,
    )
    return Consumer(*client.seams, config)


class Sessions:
    """What one consumer does with the partitions it is given, told to the history."""

    def __init__(self, client: Client, consumer: Consumer, number: int) -> None:
        self._client, self._consumer = client, consumer
        self._number = number
        self.records = 0
        self.positions: dict[TopicPartition, int] = {}

    def begin(self, starts: Mapping[TopicPartition, int]) -> None:
        client = self._client
        self._consumer.assign(list(starts))
        for place, offset in starts.items():
            self._consumer.seek(place, offset)
            self.positions[place] = offset
            began = SessionBegan(client.now, self._session(place), client.name, *place, offset)
            client.history.add(began)

    async def poll(self, timeout_ms: int) -> None:
        """Take what there is, and note it."""
        records = await self._consumer.poll(timeout_ms)
        self.records += len(records)
        for record in records:
            self._note(record)
        for place in dict.fromkeys(TopicPartition(record.topic, record.partition) for record in records):
            self.positions[place] = await self._consumer.position(place)
            now, position = self._client.now, self.positions[place]
            self._client.history.add(Polled(now, self._session(place), *place, position))

    def _note(self, record: ConsumerRecord) -> None:
        client = self._client
        place = TopicPartition(record.topic, record.partition)
        client.seen.note(record.topic, record.timestamp_ms, record.leader_epoch)
        client.history.add(Read(client.now, self._session(place), *place, kept(record)))

    async def read_to(self, ends: Mapping[TopicPartition, int], patience_s: float) -> None:
        """Read until all of these are reached, or patience is over."""
        deadline = self._client.now + patience_s
        while not self._has_reached(ends) and self._client.now < deadline:
            await self.poll(POLL_MS)

    def _has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all(self.positions[place] >= end for place, end in ends.items())

    def end(self, ends: Mapping[TopicPartition, int]) -> None:
        """Say how far each came: to the end, if that is known."""
        for place, position in self.positions.items():
            is_at_end = place in ends and position >= ends[place]
            self._client.history.add(
                SessionEnded(self._client.now, self._session(place), *place, position, is_at_end)
            )

    def _session(self, place: TopicPartition) -> str:
        return f"{self._client.name}#{self._number}:{place[0]}-{place[1]}"


async def run_reader(client: Client, topic: TopicPlan, *, is_tailing: bool) -> None:
    """Read until asked to stop."""
    random = client.random
    pause_s = between(random, 0.0, 0.5) if is_tailing else between(random, 0.5, 6.0)
    reader = _Reader(client, topic, pause_s, pick(random, PARTITION_MAX_BYTES), bool(random.below(2)))
    while not client.stopping.is_set():
        if is_tailing:
            await client.go_on("tailing", reader.tail)
        else:
            before = reader.records
            await client.go_on("reading from the start", reader.read_all)
            await client.pause(pause_s + A_RECORD_S * (reader.records - before))


class _Reader:
    def __init__(
        self,
        client: Client,
        topic: TopicPlan,
        pause_s: float,
        partition_max_bytes: int,
        read_committed: bool,
    ) -> None:
        self._client = client
        self._pause_s = pause_s
        self._partition_max_bytes = partition_max_bytes
        self._read_committed = read_committed
        self._places = [TopicPartition(topic.name, each) for each in range(topic.partitions)]
        self._positions: dict[TopicPartition, int] = {}
        self._sessions = 0
        self.records = 0

    def _consumer(self) -> Consumer:
        return make_consumer(self._client, self._partition_max_bytes, read_committed=self._read_committed)

    async def read_all(self) -> None:
        """One way to the end."""
        async with self._consumer() as consumer:
            starts = await self._starts(consumer)
            sessions = self._begin(consumer, starts)
            ends: Mapping[TopicPartition, int] = {}
            try:
                ends = await consumer.end_offsets(*self._places)
                await sessions.read_to(ends, PATIENCE_S)
            finally:
                sessions.end(ends)
                self.records += sessions.records

    async def _starts(self, consumer: Consumer) -> dict[TopicPartition, int]:
        """Where the partitions begin, or what was written at some time."""
        client = self._client
        times_ms = client.seen.timestamps.get(self._places[0].topic)
        if not times_ms or not happens(client.random, AT_A_TIME):
            return await consumer.beginning_offsets(*self._places)
        time_ms = pick(client.random, times_ms)
        found = await consumer.offsets_for_times(dict.fromkeys(self._places, time_ms))
        ends = await consumer.end_offsets(*self._places)
        return {place: ends[place] if at.offset < 0 else at.offset for place, at in found.items()}

    async def tail(self) -> None:
        """Stay at the end for a while; the next time goes on from here, if nothing goes wrong."""
        client = self._client
        async with self._consumer() as consumer:
            starts = self._positions or await consumer.end_offsets(*self._places)
            sessions = self._begin(consumer, starts)
            self._positions = {}
            ends: Mapping[TopicPartition, int] = {}
            until = client.now + ROTATE_S
            try:
                while client.now < until and not client.stopping.is_set():
                    await sessions.poll(POLL_MS)
                    await client.pause(self._pause_s)
                ends = await consumer.end_offsets(*self._places)
                await sessions.read_to(ends, PATIENCE_S)
                self._positions = dict(sessions.positions)
            finally:
                sessions.end(ends)

    def _begin(self, consumer: Consumer, starts: Mapping[TopicPartition, int]) -> Sessions:
        sessions = Sessions(self._client, consumer, self._sessions)
        self._sessions += 1
        sessions.begin(starts)
        return sessions
