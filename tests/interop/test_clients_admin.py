"""The admin clients: topics with settings created, described, listed and deleted; the cluster described."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.clients import CLIENTS, DEADLINE_S, create_topic, kafka, until, values

KafkaError = confluent_kafka.KafkaError


@pytest.fixture
def confluent(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def kafka_python(bootstrap: str) -> Iterator[Any]:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    yield admin
    admin.close()


def refusal(admin: AdminClient, new: NewTopic, **options: Any) -> int:
    """The error by which a topic is not created."""
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        admin.create_topics([new], **options)[new.topic].result(DEADLINE_S)
    code: int = caught.value.args[0].code()
    return code


def test_confluent_creates_with_settings_and_describes_them(confluent: AdminClient, topic: str) -> None:
    config = {"retention.ms": "12345", "cleanup.policy": "compact,delete"}
    confluent.create_topics([NewTopic(topic, 3, 1, config=config)])[topic].result(DEADLINE_S)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = confluent.describe_configs([resource])[resource].result(DEADLINE_S)
    assert found["retention.ms"].value == "12345"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["cleanup.policy"].value == "compact,delete"
    assert found["segment.bytes"].value == str(1 << 30)
    assert found["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert found["segment.bytes"].is_default
    (described,) = confluent.describe_topics(confluent_kafka.TopicCollection([topic])).values()
    description = described.result(DEADLINE_S)
    assert [one.id for one in description.partitions] == [0, 1, 2]
    assert {(one.leader.id, len(one.replicas), len(one.isr)) for one in description.partitions} == {(1, 1, 1)}


def test_confluent_is_told_why_a_topic_is_not_created(confluent: AdminClient, topic: str) -> None:
    confluent.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    other = f"{topic}.other"
    assert refusal(confluent, NewTopic(topic, 1, 1)) == KafkaError.TOPIC_ALREADY_EXISTS
    assert refusal(confluent, NewTopic(other, 0, 1)) == KafkaError.INVALID_PARTITIONS
    assert refusal(confluent, NewTopic(other, 1, 2)) == KafkaError.INVALID_REPLICATION_FACTOR
    assert refusal(confluent, NewTopic("no/name", 1, 1)) == KafkaError.TOPIC_EXCEPTION
    assert refusal(confluent, NewTopic(other, 1, 1, config={"no.such": "1"})) == KafkaError.INVALID_CONFIG
    wrong = NewTopic(other, 1, 1, config={"retention.ms": "long"})
    assert refusal(confluent, wrong) == KafkaError.INVALID_CONFIG
    assert refusal(confluent, NewTopic(topic, 1, 1), validate_only=True) == KafkaError.TOPIC_ALREADY_EXISTS
    confluent.create_topics([NewTopic(other, 1, 1)], validate_only=True)[other].result(DEADLINE_S)
    assert other not in confluent.list_topics(timeout=DEADLINE_S).topics


def test_confluent_describes_the_cluster(confluent: AdminClient, bootstrap: str) -> None:
    found = confluent.describe_cluster(include_authorized_operations=True).result(DEADLINE_S)
    assert [f"{node.host}:{node.port}" for node in found.nodes] == [bootstrap]
    assert found.controller.id == found.nodes[0].id == 1
    assert found.cluster_id == confluent.list_topics(timeout=DEADLINE_S).cluster_id
    assert found.authorized_operations
    broker = ConfigResource(ResourceType.BROKER, "1")
    configs = confluent.describe_configs([broker])[broker].result(DEADLINE_S)
    assert configs["node.id"].value == "1"
    assert configs["log.segment.bytes"].value == str(1 << 30)
    unknown = ConfigResource(ResourceType.TOPIC, "there-is-none")
    with pytest.raises(
        confluent_kafka.KafkaException, match=r"(?i)unknown topic|does not exist|UNKNOWN_TOPIC"
    ):
        confluent.describe_configs([unknown])[unknown].result(DEADLINE_S)


def test_confluent_deletes(confluent: AdminClient, topic: str) -> None:
    confluent.create_topics([NewTopic(topic, 5, 1)])[topic].result(DEADLINE_S)
    assert len(confluent.list_topics(timeout=DEADLINE_S).topics[topic].partitions) == 5
    confluent.delete_topics([topic])[topic].result(DEADLINE_S)
    until(lambda: topic not in confluent.list_topics(timeout=DEADLINE_S).topics, "deletion")
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        confluent.delete_topics([topic])[topic].result(DEADLINE_S)
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_confluent_lists_offsets(confluent: AdminClient, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    sent = [message._replace(timestamp_ms=1_750_000_000_000 + at) for at, message in enumerate(values(10))]
    CLIENTS[0].produce(bootstrap, topic, sent[5:] + sent[:5])
    of = confluent_kafka.TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        found: int = confluent.list_offsets({of: spec})[of].result(DEADLINE_S).offset
        return found

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.max_timestamp()) == 4
    assert offset(OffsetSpec.for_timestamp(1_750_000_000_006)) == 1


def test_kafka_python_creates_describes_lists_and_deletes(
    kafka_python: Any, bootstrap: str, topic: str
) -> None:
    wanted = {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "777"}}
    kafka_python.create_topics({topic: wanted})
    until(lambda: topic in kafka_python.list_topics(), "topic")
    (described,) = kafka_python.describe_topics([topic])
    assert len(described["partitions"]) == 2
    resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic)
    assert "777" in str(kafka_python.describe_configs([resource]))
    cluster = kafka_python.describe_cluster()
    assert [f"{one['host']}:{one['port']}" for one in cluster["brokers"]] == [bootstrap]
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        kafka_python.create_topics({topic: wanted})
    kafka_python.delete_topics([topic])
    until(lambda: topic not in kafka_python.list_topics(), "deletion")
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        kafka_python.delete_topics([topic])


def test_aiokafka_creates_describes_lists_and_deletes(
    confluent: AdminClient, bootstrap: str, topic: str
) -> None:
    async def administer() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            new = AioNewTopic(topic, 2, 1, topic_configs={"retention.ms": "777"})
            created = await admin.create_topics([new])
            assert created.topic_errors[0][:2] == (topic, 0)
            again = await admin.create_topics([new])
            assert again.topic_errors[0][:2] == (topic, 36)
            assert topic in await admin.list_topics()
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 2
            resource = AioConfigResource(AioConfigResourceType.TOPIC, topic)
            (answer,) = await admin.describe_configs([resource])
            settings = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert settings["retention.ms"] == "777"
            cluster = await admin.describe_cluster()
            assert [f"{one['host']}:{one['port']}" for one in cluster["brokers"]] == [bootstrap]
            deleted = await admin.delete_topics([topic])
            assert deleted.topic_error_codes[0][:2] == (topic, 0)
        finally:
            await admin.close()

    async def within_time() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await administer()

    asyncio.run(within_time())
    until(lambda: topic not in confluent.list_topics(timeout=DEADLINE_S).topics, "deletion")
