"""Fetch as clients see it: limits, waits, and who leads; `--target=kafka` says whether this is right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchResponse, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from tests.support.raw_client import RawClient, fetch_request, produce_request, wait_until

FETCH_BY_ID, PRODUCE = 16, 9
FENCED_EPOCH = 74


@pytest.fixture
def client(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(int(bootstrap.rpartition(":")[2])) as connected:
        yield connected


def _create(client: RawClient, name: str, partitions: int = 1, **settings: str) -> bytes:
    """A topic whose leaders are there, with a record in each partition; its id."""
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=text) for key, text in settings.items()]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs
    )
    answer = client.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer
    for partition in range(partitions):  # in Kafka, leaders take their time
        wait_until(lambda at=partition: not _produce(client, name, 10, at), f"a leader of {name}")
    return answer.topics[0].topic_id


def _produce(client: RawClient, topic: str, size: int, partition: int = 0) -> int:
    """A batch of one record; the error code."""
    answer = client.ask(produce_request(topic, [bytes(size)], partition=partition), PRODUCE, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


# ---- who leads ------------------------------------------------------------------------------------------


def test_a_leader_is_named_once(client: RawClient) -> None:
    """Java's clients make a map of the endpoints, and fail where a node is in it twice."""
    topic_id = _create(client, "led", partitions=3)
    request = fetch_request("")
    asks = [
        FetchPartition(partition=at, current_leader_epoch=-2, fetch_offset=0, partition_max_bytes=1 << 20)
        for at in range(3)
    ]
    request.topics = [FetchTopic(topic_id=topic_id, partitions=asks)]
    answer = client.ask(request, FETCH_BY_ID, FetchResponse)
    assert [one.error_code for one in answer.responses[0].partitions] == [FENCED_EPOCH] * 3
    metadata = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="led")]), 9, MetadataResponse)
    leader_id = metadata.topics[0].partitions[0].leader_id
    assert {one.current_leader.leader_id for one in answer.responses[0].partitions} == {leader_id}
    assert [endpoint.node_id for endpoint in answer.node_endpoints] == [leader_id]
