"""What one client commits for a group, every other finds: offsets, texts, and what administrators see."""

from __future__ import annotations

import asyncio
import contextlib

import aiokafka
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.clients import create_topic, kafka

NOTES = ["from confluent", "from kafka-python", "from aiokafka"]
# confluent-kafka commits the zero that ends a text in C, and reads on where there is none: on Kafka as well
TEXTS = [f"{note}\0" for note in NOTES]


def commit_by_confluent(bootstrap: str, topic: str, group: str) -> list[tuple[int, str | None]]:
    """Commit for partition 0, and say what is committed for all."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, 5, metadata=NOTES[0])], asynchronous=False)
    found = consumer.committed([TopicPartition(topic, number) for number in range(3)], timeout=20)
    consumer.close()
    return [(one.offset, one.metadata) for one in found]


def commit_by_kafka_python(bootstrap: str, topic: str, group: str) -> list[tuple[int, str] | None]:
    """The same for partition 1."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    places = [kafka.TopicPartition(topic, number) for number in range(3)]
    consumer.assign(places)
    consumer.commit({places[1]: kafka.OffsetAndMetadata(6, TEXTS[1], -1)})
    found = [consumer.committed(place, metadata=True) for place in places]
    consumer.close(autocommit=False)
    return [None if one is None else (one.offset, one.metadata) for one in found]


async def commit_by_aiokafka(bootstrap: str, topic: str, group: str) -> list[int | None]:
    """The same for partition 2."""
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
    )
    await consumer.start()
    try:
        places = [aiokafka.TopicPartition(topic, number) for number in range(3)]
        consumer.assign(places)
        await consumer.commit({places[2]: (7, TEXTS[2])})
        return [await consumer.committed(place) for place in places]
    finally:
        await consumer.stop()


def test_each_client_finds_what_the_others_committed(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=3)
    group = f"group of {topic}"
    assert commit_by_confluent(bootstrap, topic, group)[0] == (5, NOTES[0])
    assert commit_by_kafka_python(bootstrap, topic, group) == [(5, TEXTS[0]), (6, TEXTS[1]), None]
    assert asyncio.run(commit_by_aiokafka(bootstrap, topic, group)) == [5, 6, 7]
    assert commit_by_kafka_python(bootstrap, topic, group) == list(zip((5, 6, 7), TEXTS, strict=True))
    found = commit_by_confluent(bootstrap, topic, group)
    assert found == list(zip((5, 6, 7), NOTES, strict=True))


def test_administrators_see_and_alter_them(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=3)
    group = f"group of {topic}"
    commit_by_confluent(bootstrap, topic, group)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    change = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 2, 50)])
    admin.alter_consumer_group_offsets([change])[group].result(20)
    everything = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    told = everything[group].result(20).topic_partitions
    assert {one.partition: one.offset for one in told} == {0: 5, 2: 50}
    places = [kafka.TopicPartition(topic, number) for number in range(3)]
    with contextlib.closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as python:
        listed = python.list_group_offsets([group, f"nobody in {topic}"])
        # confluent-kafka commits the zero that ends a text in C
        found = {at.partition: (one.offset, one.metadata.rstrip("\0")) for at, one in listed[group].items()}
        assert found == {0: (5, NOTES[0]), 2: (50, "")}
        assert listed[f"nobody in {topic}"] == {}
        python.delete_group_offsets(group, [places[0]])
        assert list(python.list_group_offsets(group)[group]) == [places[2]]
