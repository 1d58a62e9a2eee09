"""The admin clients add partitions, delete records, ask for elections and moves, and find codecs heeded.

`--target=kafka` says whether this is what Kafka does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.support.clients import CLIENTS, DEADLINE_S, create_topic, kafka, until, values

KafkaError = confluent_kafka.KafkaError
TopicPartition = confluent_kafka.TopicPartition
ELECTIONS = confluent_kafka.ElectionType


@pytest.fixture
def confluent(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def kafka_python(bootstrap: str) -> Iterator[Any]:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    yield admin
    admin.close()


def earliest(confluent: AdminClient, topic: str) -> int:
    of = TopicPartition(topic, 0)
    found: int = confluent.list_offsets({of: OffsetSpec.earliest()})[of].result(DEADLINE_S).offset
    return found


def partitions_of(confluent: AdminClient, topic: str) -> int:
    return len(confluent.list_topics(timeout=DEADLINE_S).topics[topic].partitions)


def test_confluent_adds_partitions(confluent: AdminClient, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    confluent.create_partitions([NewPartitions(topic, 3)])[topic].result(DEADLINE_S)
    confluent.create_partitions([NewPartitions(topic, 5, [[1], [1]])])[topic].result(DEADLINE_S)
    until(lambda: partitions_of(confluent, topic) == 5, "new partitions")
    CLIENTS[0].produce(bootstrap, topic, [message._replace(partition=4) for message in values(3)])
    with pytest.raises(confluent_kafka.KafkaException, match="would not be an increase") as caught:
        confluent.create_partitions([NewPartitions(topic, 2)])[topic].result(DEADLINE_S)
    assert caught.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def test_confluent_deletes_records(confluent: AdminClient, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    CLIENTS[0].produce(bootstrap, topic, values(10))
    at = TopicPartition(topic, 0, 4)
    assert confluent.delete_records([at])[at].result(DEADLINE_S).low_watermark == 4
    assert earliest(confluent, topic) == 4
    beyond = TopicPartition(topic, 0, 11)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        confluent.delete_records([beyond])[beyond].result(DEADLINE_S)
    assert caught.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
    everything = TopicPartition(topic, 0, confluent_kafka.OFFSET_END)
    assert confluent.delete_records([everything])[everything].result(DEADLINE_S).low_watermark == 10


def test_confluent_asks_for_elections(confluent: AdminClient, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    for election in (ELECTIONS.PREFERRED, ELECTIONS.UNCLEAN):
        asked = [TopicPartition(topic, 0), TopicPartition(topic, 7)]
        found = confluent.elect_leaders(election, asked).result(DEADLINE_S)
        codes = {at.partition: error.code() for at, error in found.items()}
        assert codes == {0: KafkaError.ELECTION_NOT_NEEDED, 7: KafkaError.UNKNOWN_TOPIC_OR_PART}


def test_kafka_python_adds_partitions_and_deletes_records(
    kafka_python: Any, confluent: AdminClient, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    CLIENTS[0].produce(bootstrap, topic, values(10))
    kafka_python.create_partitions({topic: 3})
    until(lambda: partitions_of(confluent, topic) == 3, "new partitions")
    with pytest.raises(kafka.errors.InvalidPartitionsError):
        kafka_python.create_partitions({topic: 3})
    at = kafka.TopicPartition(topic, 0)
    kafka_python.delete_records({at: 6})
    assert earliest(confluent, topic) == 6
    compacted = f"{topic}.compacted"
    confluent.create_topics([NewTopic(compacted, 1, 1, config={"cleanup.policy": "compact"})])[
        compacted
    ].result(DEADLINE_S)
    with pytest.raises(kafka.errors.PolicyViolationError):
        kafka_python.delete_records({kafka.TopicPartition(compacted, 0): -1})


def test_kafka_python_asks_for_elections_moves_and_producers(
    kafka_python: Any, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    CLIENTS[0].produce(bootstrap, topic, values(10), **{"enable.idempotence": True})
    at = kafka.TopicPartition(topic, 0)
    elected = kafka_python.elect_leaders(0, {topic: [0]}, raise_errors=False)
    assert "84" in str(elected) or "ElectionNotNeeded" in str(elected)
    assert topic not in str(kafka_python.list_partition_reassignments())
    kafka_python.alter_partition_reassignments({at: [1]})
    refused = str(kafka_python.alter_partition_reassignments({at: [1, 2]}))
    assert "39" in refused or "InvalidReplicationAssignment" in refused
    assert "last_sequence=9" in str(kafka_python.describe_producers([at]))


def test_aiokafka_adds_partitions_and_deletes_records(
    confluent: AdminClient, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    CLIENTS[0].produce(bootstrap, topic, values(10))

    async def administer() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_partitions({topic: AioNewPartitions(3)})
            deleted = await admin.delete_records({AioTopicPartition(topic, 0): RecordsToDelete(7)})
            assert list(deleted.values()) == [7]
        finally:
            await admin.close()

    async def within_time() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await administer()

    asyncio.run(within_time())
    until(lambda: partitions_of(confluent, topic) == 3, "new partitions")
    assert earliest(confluent, topic) == 7


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_every_client_writes_to_and_reads_from_a_topic_with_a_codec_of_its_own(
    confluent: AdminClient, bootstrap: str, topic: str, codec: str
) -> None:
    new = NewTopic(topic, 1, 1, config={"compression.type": codec})
    confluent.create_topics([new])[topic].result(DEADLINE_S)
    sent = []
    for client in CLIENTS:
        mine = values(5)
        client.produce(bootstrap, topic, mine)
        sent += [message.value for message in mine]
    for client in CLIENTS:
        assert [got.value for got in client.consume(bootstrap, topic, len(sent))] == sent
