"""Fetch as clients see it: limits, waits, and who leads; `--target=kafka` says whether this is right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

import pytest

from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.records.reader import read_records
from tests.support.raw_client import RawClient, fetch_request, produce_request, wait_until
from tests.support.session_fetches import EXPECTED, deleted_and_created_again
from tests.support.targets import Target

FETCH, FETCH_BY_ID, PRODUCE = 12, 16, 9
OUT_OF_RANGE, FENCED_EPOCH, UNKNOWN_EPOCH = 1, 74, 75
LONG_MS = 60_000  # longer than the client waits for an answer


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


def _offsets(client: RawClient, request: FetchRequest, at_most: int = 10) -> list[int]:
    """The first offsets that come; Kafka may cut the batch that comes last."""
    answer = client.ask(request, FETCH, FetchResponse)
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == 0
    return [record.offset for record in islice(read_records(partition.records or b""), at_most)]


# ---- how long it waits ----------------------------------------------------------------------------------


def test_whoever_is_behind_does_not_wait_for_more(client: RawClient) -> None:
    """Whole batches rarely fill a limit to the byte; what is left out is there all the same."""
    _create(client, "behind")
    for _ in range(9):
        assert _produce(client, "behind", 50_000) == 0
    request = fetch_request("behind", offset=1, max_wait_ms=LONG_MS, min_bytes=120_000, max_bytes=120_000)
    assert _offsets(client, request, at_most=2) == [1, 2]


def test_no_more_is_waited_for_than_may_be_answered(client: RawClient) -> None:
    _create(client, "modest")
    for _ in range(4):
        assert _produce(client, "modest", 50_000) == 0
    request = fetch_request("modest", offset=1, max_wait_ms=LONG_MS, min_bytes=1 << 30, max_bytes=60_000)
    assert _offsets(client, request, at_most=1) == [1]


def test_the_end_of_a_segment_is_not_the_end(client: RawClient) -> None:
    _create(client, "segments", segment_bytes=str(1 << 20))
    for _ in range(3):
        assert _produce(client, "segments", 400_000) == 0
    request = fetch_request("segments", offset=2, max_wait_ms=LONG_MS, min_bytes=700_000)
    assert _offsets(client, request) == [2]
    assert _offsets(client, fetch_request("segments", offset=3)) == [3]


def test_too_little_is_waited_for(client: RawClient) -> None:
    _create(client, "little")
    began = time.monotonic()
    request = fetch_request("little", offset=0, max_wait_ms=300, min_bytes=10_000)
    assert _offsets(client, request) == [0]
    assert time.monotonic() - began >= 0.29


def test_partitions_without_room_are_answered_all_the_same(client: RawClient) -> None:
    _create(client, "crowded", partitions=3)
    request = fetch_request("crowded", max_bytes=1)
    asks = [
        FetchPartition(partition=at, fetch_offset=offset, partition_max_bytes=1 << 20)
        for at, offset in ((0, 0), (1, 0), (2, 7))
    ]
    request.topics = [FetchTopic(topic="crowded", partitions=asks)]
    first, second, third = client.ask(request, FETCH, FetchResponse).responses[0].partitions
    assert first.records  # larger than the limit, or nobody would ever get on
    assert (second.error_code, second.high_watermark, bytes(second.records or b"")) == (0, 1, b"")
    assert third.error_code == OUT_OF_RANGE


# ---- who leads ------------------------------------------------------------------------------------------


def _under_epoch(topic_id: bytes, epoch: int) -> FetchRequest:
    """All three partitions of a topic, by a client that knows of that leader epoch."""
    request = fetch_request("")
    asks = [
        FetchPartition(partition=at, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1 << 20)
        for at in range(3)
    ]
    request.topics = [FetchTopic(topic_id=topic_id, partitions=asks)]
    return request


@pytest.mark.parametrize(("epoch", "error_code"), [(0, 0), (-1, 0), (-2, 0), (1, UNKNOWN_EPOCH)])
def test_the_leader_epoch_that_a_client_knows(client: RawClient, epoch: int, error_code: int) -> None:
    topic_id = _create(client, f"epoch{epoch}", partitions=3)
    answer = client.ask(_under_epoch(topic_id, epoch), FETCH_BY_ID, FetchResponse)
    assert [one.error_code for one in answer.responses[0].partitions] == [error_code] * 3


def test_a_leader_is_named_once(new_target: Callable[[Mapping[str, str]], Target]) -> None:
    """Java's clients make a map of the endpoints, and fail where a node is in it twice."""
    target = new_target({})
    with RawClient(target.port) as client:
        topic_id = _create(client, "led", partitions=3)
    target.stop()
    target.start()
    with RawClient(target.port) as client:
        for partition in range(3):
            wait_until(lambda at=partition: not _produce(client, "led", 10, at), "a leader after the restart")
        answer = client.ask(_under_epoch(topic_id, 0), FETCH_BY_ID, FetchResponse)
    (topic,) = answer.responses
    assert [one.error_code for one in topic.partitions] == [FENCED_EPOCH] * 3
    assert {one.current_leader.leader_id for one in topic.partitions} == {1}
    assert [endpoint.node_id for endpoint in answer.node_endpoints] == [1]


# ---- sessions -------------------------------------------------------------------------------------------


def test_session_remembers_the_names_of_its_topics(client: RawClient) -> None:
    assert deleted_and_created_again(client, "remembered") == EXPECTED
