"""Clients that make and delete topics.

An answer that is lost on the way leaves open whether it was done; so a creation is asked for until the topic
is there, and a deletion until it is gone. From the moment a deletion is asked for nothing is promised of the
topic. Attempts to create one that were not answered are noted, also those that the admin client repeats by
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.errors import TopicExists, UnknownTopic
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer import ProducerConfig
from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.schema import Message
from barnabas.sim.chance import between, happens
from barnabas.sim.history import (
    TopicDeleted,
    TopicDeleting,
    TopicFacts,
    TopicMade,
    TopicMaking,
    TopicUnanswered,
)
from barnabas.sim.scenario import TopicPlan
from barnabas.sim.transaction_events import OutputMade
from barnabas.sim.workload.client import CLIENT, Client
from barnabas.sim.workload.reading import PATIENCE_S, Sessions, make_consumer
from barnabas.sim.workload.sending import MAX_BLOCK_MS, Sender, make_value

CHURN_DELIVERY_MS = 6_000
PAUSE_S = 8.0
RECORDS = 5
CHURN_REPLICAS = 3  # where there are as many brokers
FETCH_BYTES = 100_000
OUTPUT_CONFIGS = {"message.timestamp.after.max.ms": str((1 << 63) - 1), "retention.ms": "-1"}
CHURN_CONFIGS = {"file.delete.delay.ms": "1000", "message.timestamp.after.max.ms": str((1 << 63) - 1)}


M = TypeVar("M", bound=Message)


class _Maker(Admin):
    """Notes the attempts to create a topic that were not answered."""

    def __init__(self, client: Client) -> None:
        super().__init__(*client.seams, CLIENT)
        self._of = client

    async def _ask_controller(
        self, request: Message, response: type[M], errors: Callable[[M], Iterable[int]], *, is_safe: bool
    ) -> M:
        try:
            return await super()._ask_controller(request, response, errors, is_safe=is_safe)
        except BarnabasError:
            if isinstance(request, CreateTopicsRequest):
                for topic in request.topics:
                    self._of.history.add(TopicUnanswered(self._of.now, topic.name))
            raise


async def make_topics(client: Client, topics: Sequence[TopicPlan]) -> None:
    """Make these, however long it takes."""
    async with _Maker(client) as admin:
        for topic in topics:
            wanted = NewTopic(topic.name, topic.partitions, topic.replicas, topic.configs)
            await _make(client, admin, wanted, topic.facts)


async def make_outputs(client: Client, outputs: Sequence[tuple[str, int]]) -> None:
    """Make topics that transactions write, with the broker's settings."""

    async def create(topic: NewTopic) -> None:
        with suppress(TopicExists):
            await admin.create_topics([topic])

    replicas, min_in_sync, configs = 1, 1, OUTPUT_CONFIGS
    if client.world.scenario.replication is not None:
        replicas, min_in_sync = 3, 2
        configs = OUTPUT_CONFIGS | {"min.insync.replicas": str(min_in_sync)}
    async with Admin(*client.seams, CLIENT) as admin:
        for name, partitions in outputs:
            making = partial(create, NewTopic(name, partitions, replicas, configs))
            while not await client.go_on(f"making {name}", making):
                pass
            client.history.add(OutputMade(client.now, name, partitions, replicas, min_in_sync))


async def _make(client: Client, admin: Admin, topic: NewTopic, facts: TopicFacts) -> None:
    async def create() -> None:
        with suppress(TopicExists):  # an earlier try did it
            await admin.create_topics([topic])

    client.history.add(TopicMaking(client.now, topic.name))
    while not await client.go_on(f"making {topic.name}", create):
        pass
    client.history.add(TopicMade(client.now, topic.name, facts))


async def _delete(client: Client, admin: Admin, name: str) -> None:
    client.history.add(TopicDeleting(client.now, name))

    async def delete() -> None:
        with suppress(UnknownTopic):
            await admin.delete_topics([name])

    while not await client.go_on(f"deleting {name}", delete):
        pass
    client.history.add(TopicDeleted(client.now, name))


async def _read(client: Client, place: TopicPartition, number: int) -> None:
    async with make_consumer(client, FETCH_BYTES) as consumer:
        sessions = Sessions(client, consumer, number)
        sessions.begin(await consumer.beginning_offsets(place))
        ends = await consumer.end_offsets(place)
        await sessions.read_to(ends, PATIENCE_S)
        sessions.end(ends)


async def run_churn(client: Client) -> None:
    """Make a topic, write and read it, delete it, now and then under a name that was used before."""
    config = ProducerConfig(max_block_ms=MAX_BLOCK_MS, delivery_timeout_ms=CHURN_DELIVERY_MS, client=CLIENT)
    sender = Sender(client, config)
    replicas, configs, facts = 1, CHURN_CONFIGS, TopicFacts()
    if client.world.scenario.replication is not None:
        replicas, configs = CHURN_REPLICAS, CHURN_CONFIGS | {"min.insync.replicas": "2"}
        facts = TopicFacts(replicas=replicas, min_in_sync=2)
    made = read = 0
    async with _Maker(client) as admin, sender.producer:
        while not client.stopping.is_set():
            made += made == 0 or not happens(client.random, 0.3)
            name = f"{client.name}.{made}"
            await _make(client, admin, NewTopic(name, 1, replicas, configs), facts)
            for _ in range(client.random.below(RECORDS)):
                await sender.send(name, 0, None, make_value(client, 100))
            await client.clock.sleep(between(client.random, 0.0, PAUSE_S))
            read += 1
            await client.go_on(f"reading {name}", partial(_read, client, TopicPartition(name, 0), read))
            await _delete(client, admin, name)
            await client.pause(PAUSE_S)
