"""Topics come, go and come again under running clients; unknown ones; one of a thousand partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka import admin as confluent_admin

from tests.support.clients import (
    CLIENTS,
    DEADLINE_S,
    Client,
    Message,
    confluent_consumer,
    confluent_next,
    create_topic,
    delete_topic,
    until,
    values,
)
from tests.support.targets import Target

by_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


@by_client
def test_a_topic_is_created_by_who_writes_to_it(client: Client, bootstrap: str, topic: str) -> None:
    assert client.produce(bootstrap, topic, values(5)) == [0, 1, 2, 3, 4]
    assert len(client.consume(bootstrap, topic, 5)) == 5


def test_looking_for_an_unknown_topic_does_not_create_it(bootstrap: str, topic: str) -> None:
    admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap, "allow.auto.create.topics": False})
    error = confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    for _ in range(2):
        found = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic]
        assert found.error is not None
        assert found.error.code() == error
    assert topic not in admin.list_topics(timeout=DEADLINE_S).topics


def test_nothing_is_created_where_that_is_switched_off(
    new_target: Callable[[Mapping[str, str]], Target], topic: str
) -> None:
    bootstrap = new_target({"auto.create.topics.enable": "false"}).bootstrap
    with pytest.raises(confluent_kafka.KafkaException, match=r"(?i)unknown topic"):
        CLIENTS[0].produce(bootstrap, topic, values(1), **{"topic.metadata.propagation.max.ms": 1})
    assert topic not in confluent_admin.AdminClient({"bootstrap.servers": bootstrap}).list_topics().topics
    create_topic(bootstrap, topic)
    assert CLIENTS[0].produce(bootstrap, topic, values(1)) == [0]


def test_a_name_that_no_topic_may_have(bootstrap: str) -> None:
    with pytest.raises(Exception, match=r"(?i)invalid.*topic"):
        CLIENTS[0].produce(bootstrap, "no/such/name", values(1))


def recreate(bootstrap: str, topic: str) -> None:
    """Another topic of the same name."""
    delete_topic(bootstrap, topic)

    def created() -> bool:
        try:
            create_topic(bootstrap, topic)
        except confluent_kafka.KafkaException as error:
            # Kafka answers before it has forgotten everything of the old one
            if error.args[0].code() != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    until(created, "topic of the same name")


def test_confluent_reads_on_when_its_topic_is_recreated(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    CLIENTS[0].produce(bootstrap, topic, values(100, "old"))
    settings = {"auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 100}
    with confluent_consumer(bootstrap, **settings) as consumer:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        assert [confluent_next(consumer).offset for _ in range(100)] == list(range(100))
        recreate(bootstrap, topic)
        CLIENTS[0].produce(bootstrap, topic, values(10, "new"))

        def new() -> bytes | None:
            message = consumer.poll(0.1)
            # it may be told that its topic is gone for a moment
            return None if message is None or message.error() else message.value()

        assert until(new, "message of the new topic") == values(1, "new")[0].value
        assert [confluent_next(consumer).offset for _ in range(9)] == list(range(1, 10))


def test_aiokafka_reads_on_when_its_topic_is_recreated(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    CLIENTS[1].produce(bootstrap, topic, values(100, "old"))
    of = aiokafka.TopicPartition(topic, 0)

    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            metadata_max_age_ms=200,
        )
        async with asyncio.timeout(DEADLINE_S), consumer:
            consumer.assign([of])
            consumer.seek(of, 0)
            found = [(await consumer.getone()).value for _ in range(100)]
            await asyncio.to_thread(recreate, bootstrap, topic)
            await asyncio.to_thread(CLIENTS[0].produce, bootstrap, topic, values(10, "new"))
            return found + [(await consumer.getone()).value for _ in range(10)]

    assert asyncio.run(read()) == [one.value for one in values(100, "old") + values(10, "new")]


@by_client
def test_a_running_producer_goes_on_in_the_new_topic(client: Client, bootstrap: str, topic: str) -> None:
    """Idempotent sequences begin anew with the topic."""
    create_topic(bootstrap, topic)
    assert client.produce(bootstrap, topic, values(10), idempotent=True)[-1] == 9
    recreate(bootstrap, topic)
    assert client.produce(bootstrap, topic, values(10), idempotent=True)[-1] == 9
    assert client.offsets(bootstrap, topic)[:2] == (0, 10)


def test_a_thousand_partitions(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1000)
    by_partition = [Message(f"in {partition}".encode(), partition=partition) for partition in range(1000)]
    for client in CLIENTS:
        offsets = client.produce(bootstrap, topic, by_partition)
        assert len(offsets) == 1000
    with confluent_consumer(bootstrap) as consumer:
        consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(1000)])
        found = [message for message in consumer.consume(3000, DEADLINE_S) if not message.error()]
    assert sorted((one.partition(), one.offset(), one.value()) for one in found) == [
        (partition, offset, f"in {partition}".encode()) for partition in range(1000) for offset in range(3)
    ]
    delete_topic(bootstrap, topic)
