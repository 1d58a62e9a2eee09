"""What is done after the faults: the last sends, which must all go well, readers who wait for them at the end
of every partition, and a read of all there is."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.client.admin import Admin
from barnabas.client.consumer import Consumer
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer import ProducerConfig
from barnabas.sim.history import FinalRead, Kept, TopicDeleting, TopicMade, TopicsListed
from barnabas.sim.scenario import TopicPlan
from barnabas.sim.workload.client import CLIENT, Client, kept
from barnabas.sim.workload.reading import POLL_MS, Sessions, make_consumer
from barnabas.sim.workload.sending import DELIVERY_TIMEOUT_MS, MAX_BLOCK_MS, Sender

TRIES = 5
ROUNDS = 4  # of last sends, so that segments roll between them
VALUE_BYTES = 50  # fewer than any topic's limit
READ_S = 30.0
WAIT_MS = 3_000  # what a fetch may wait for data: long enough for it to be seen whether it is woken
FETCH_BYTES = 1 << 20


async def send_last(client: Client, topics: Sequence[TopicPlan], rounds_apart_s: float) -> None:
    """Some records for every partition, one after another: whoever has just been woken misses the next most
    easily. Where keys can be deleted, one is, in every round."""
    config = ProducerConfig(max_block_ms=MAX_BLOCK_MS, delivery_timeout_ms=DELIVERY_TIMEOUT_MS, client=CLIENT)
    sender = Sender(client, config)
    async with sender.producer:
        for number in range(ROUNDS):
            for topic in topics:
                for partition in range(topic.partitions):
                    value = client.random.bytes(VALUE_BYTES)
                    await sender.send(topic.name, partition, b"last-%d" % number, value)
                    if topic.is_compacted:
                        await sender.send(topic.name, partition, b"gone-%d" % number, value)
                        await sender.send(topic.name, partition, b"gone-%d" % number, None)
                    await sender.producer.flush()
            await client.clock.sleep(rounds_apart_s)


async def follow_last(client: Client, topics: Sequence[TopicPlan]) -> None:
    """Stay at the end of every partition, from which nothing may be taken, until asked to stop."""
    kept_topics = [topic for topic in topics if not topic.facts.is_trimmed]
    places = [TopicPartition(topic.name, each) for topic in kept_topics for each in range(topic.partitions)]

    async def follow() -> None:
        async with make_consumer(client, FETCH_BYTES, WAIT_MS) as consumer:
            sessions = Sessions(client, consumer, 0)
            sessions.begin(await consumer.end_offsets(*places))
            while not client.stopping.is_set():
                await sessions.poll(POLL_MS)
            ends = await consumer.end_offsets(*places)
            await sessions.read_to(ends, READ_S)
            sessions.end(ends)

    if places:
        await client.go_on("following the end", follow)


async def read_everything(client: Client) -> None:
    """One read of each partition from its start to its end, and the list of topics."""
    await _tried(client, "listing topics", _Lister(client))
    deleted = {event.topic for event in client.history.of(TopicDeleting)}
    made = {event.topic: event.facts.partitions for event in client.history.of(TopicMade)}
    for topic, partitions in made.items():
        if topic not in deleted:
            for partition in range(partitions):
                await _tried(client, f"reading {topic}-{partition}", _Final(client, topic, partition))


class _Lister:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(self) -> None:
        client = self._client
        async with Admin(*client.seams, CLIENT) as admin:
            asked_at = client.now
            topics = await admin.describe_topics()
            client.history.add(TopicsListed(client.now, asked_at, tuple(sorted(topics))))


class _Final:
    def __init__(self, client: Client, topic: str, partition: int) -> None:
        self._client, self._place = client, (topic, partition)

    async def __call__(self) -> None:
        client, place = self._client, self._place
        async with make_consumer(client, FETCH_BYTES) as consumer:
            asked_at = client.now
            (start,) = (await consumer.beginning_offsets(place)).values()
            (end,) = (await consumer.end_offsets(place)).values()
            records = await self._read(consumer, start, end)
            if records is not None:
                client.history.add(FinalRead(client.now, asked_at, *place, start, end, tuple(records)))

    async def _read(self, consumer: Consumer, start: int, end: int) -> list[Kept] | None:
        """All from start to end; None where it takes too long."""
        consumer.assign([self._place])
        consumer.seek(self._place, start)
        records: list[Kept] = []
        deadline = self._client.now + READ_S
        while await consumer.position(self._place) < end:
            if self._client.now > deadline:
                return None
            records += [kept(record) for record in await consumer.poll(POLL_MS)]
        return records


async def _tried(client: Client, doing: str, step: _Lister | _Final) -> None:
    for _ in range(TRIES):
        if await client.go_on(doing, step):
            return
