"""OffsetFetch while groups are not served: nothing is committed, unless Kafka has left commits behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.testing import Broker
from tests.support.raw_client import RawClient

COORDINATOR_NOT_AVAILABLE = 15


def request(version: int) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        )
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])


@pytest.mark.parametrize("version", [1, 7, 8, 10])
def test_nothing_is_committed(broker: Broker, version: int) -> None:
    with RawClient(broker.port) as client:
        response = client.ask(request(version), version, OffsetFetchResponse)
    topics = response.topics if version < 8 else response.groups[0].topics
    found = [(p.partition_index, p.committed_offset, p.error_code) for t in topics for p in t.partitions]
    assert found == [(0, -1, 0), (1, -1, 0)]


@pytest.mark.parametrize("version", [2, 8])
def test_commits_that_cannot_be_read_are_not_told_to_be_none(broker: Broker, version: int) -> None:
    offsets = CreatableTopic(
        name="__consumer_offsets", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    with RawClient(broker.port) as client:
        made = client.ask(CreateTopicsRequest(topics=[offsets], timeout_ms=1000), 5, CreateTopicsResponse)
        assert [topic.error_code for topic in made.topics] == [0]
        response = client.ask(request(version), version, OffsetFetchResponse)
    code = response.error_code if version < 8 else response.groups[0].error_code
    assert code == COORDINATOR_NOT_AVAILABLE


def test_a_reader_of_a_group_without_a_position_begins_where_it_is_told(
    make_broker: Callable[..., Broker],
) -> None:
    broker = make_broker()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("t", b"first")
    assert producer.flush(20) == 0
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.assign([TopicPartition("t", 0)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.value() == b"first"
