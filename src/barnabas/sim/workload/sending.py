"""Clients that send: idempotent or plain, with keys or without, on compacted topics with tombstones.

Every record says in itself who sent it and which one it is. A burst is handed over without waiting for
acknowledgements; they are noted as they come.
"""

from __future__ import annotations

import asyncio

from barnabas.client.batches import RecordMetadata
from barnabas.client.partitioner import partition_of
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.core.errors import BarnabasError
from barnabas.sim.chance import happens, pick
from barnabas.sim.history import NO_PARTITION, Acked, Failed, Sent, digest
from barnabas.sim.scenario import ProducerPlan, TopicPlan
from barnabas.sim.workload.client import CLIENT, MARK_END, MARK_HEADER, Client

BURSTS_PER_SECOND = (0.5, 2.0, 5.0)
TOMBSTONES = (0.05, 0.2, 0.5)  # the part of a compacted topic's records, by producer
LARGE, LARGE_BYTES = 0.003, 200_000
RARE, RARE_KEYS = 0.1, 300  # keys of a compacted topic that are written once, or seldom, and stay for long
DELIVERY_TIMEOUT_MS = 20_000
MAX_BLOCK_MS = 10_000


class Sender:
    """A producer, with the history of what it is given."""

    def __init__(self, client: Client, config: ProducerConfig) -> None:
        self._client = client
        self._number = 0
        self.producer = Producer(*client.seams, config)

    async def send(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Hand a record over, its mark before the value."""
        client = self._client
        mark = f"{client.name}/{self._number}"
        headers = ((MARK_HEADER, mark.encode()),) if value is None else ()
        whole = None if value is None else mark.encode() + MARK_END + value
        time_ms = client.clock.wall_ms()
        sent = Sent(
            client.now,
            mark,
            client.name,
            self._number,
            self.producer.config.idempotence,
            topic,
            partition,
            key,
            digest(whole),
            time_ms,
            self.producer.config.acks,
        )
        client.history.add(sent)
        self._number += 1
        try:
            to = None if partition == NO_PARTITION else partition
            written = await self.producer.send(topic, whole, key, to, headers, time_ms)
        except BarnabasError as error:
            self._failed(mark, error)
        else:
            written.add_done_callback(lambda done: self._settled(mark, done))

    def _settled(self, mark: str, written: asyncio.Future[RecordMetadata]) -> None:
        if written.cancelled():
            return
        error = written.exception()
        if error is not None:
            self._failed(mark, error)
            return
        client, where = self._client, written.result()
        client.seen.note(where.topic, where.timestamp_ms, 0)
        client.history.add(
            Acked(client.now, mark, where.topic, where.partition, where.offset, where.timestamp_ms)
        )

    def _failed(self, mark: str, error: BaseException) -> None:
        self._client.history.add(Failed(self._client.now, mark, f"{type(error).__name__}: {error}"))


def producer_config(plan: ProducerPlan) -> ProducerConfig:
    return ProducerConfig(
        acks=plan.acks,
        idempotence=plan.is_idempotent,
        compression=plan.codec,
        batch_bytes=plan.batch_bytes,
        linger_ms=plan.linger_ms,
        max_in_flight=plan.max_in_flight,
        max_block_ms=MAX_BLOCK_MS,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        client=CLIENT,
    )


async def run_sender(client: Client, plan: ProducerPlan, topic: TopicPlan) -> None:
    """Send bursts until asked to stop; returns when everything is settled."""
    bursts_per_second = pick(client.random, BURSTS_PER_SECOND)
    tombstones = pick(client.random, TOMBSTONES) if topic.is_compacted else 0.0
    burst = max(1, round(2 * plan.records_per_second / bursts_per_second))
    sender = Sender(client, producer_config(plan))
    async with sender.producer:
        while not client.stopping.is_set():
            for _ in range(1 + client.random.below(burst)):
                await _send_one(client, plan, sender, topic, tombstones)
            await client.pause(1 / bursts_per_second)


async def _send_one(
    client: Client, plan: ProducerPlan, sender: Sender, topic: TopicPlan, tombstones: float
) -> None:
    random = client.random
    key = b"k%d" % random.below(plan.keys) if plan.keys else None
    if topic.is_compacted and happens(random, RARE):
        key = b"rare-%d" % random.below(RARE_KEYS)
    partition = NO_PARTITION
    if key is not None:
        partition = partition_of(key, topic.partitions)
    elif happens(random, 0.5):
        partition = random.below(topic.partitions)
    value = None if happens(random, tombstones) else make_value(client, plan.value_bytes)
    await sender.send(topic.name, partition, key, value)


def make_value(client: Client, most_bytes: int) -> bytes:
    """Bytes that compress a little, or a lot; now and then very many."""
    random = client.random
    size = random.below(LARGE_BYTES) if happens(random, LARGE) else random.below(most_bytes + 1)
    half = random.bytes(size // 2)
    return half + half if random.below(2) else half + bytes(size - size // 2)
