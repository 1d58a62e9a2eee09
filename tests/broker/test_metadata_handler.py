"""Metadata by names and by ids."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.schema import NO_UUID
from barnabas.testing import Broker
from tests.support.raw_client import RawClient, metadata_request

UNKNOWN_TOPIC = 3
INVALID_TOPIC = 17
INVALID_REQUEST = 42
UNKNOWN_TOPIC_ID = 100


def ask(client: RawClient, version: int, name: str | None, topic_id: bytes) -> tuple[int, str | None, bytes]:
    topics = [MetadataRequestTopic(name=name, topic_id=topic_id)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    (topic,) = client.ask(request, version, MetadataResponse).topics
    return topic.error_code, topic.name, topic.topic_id


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize("name", [None, ""])  # librdkafka says the one, Java the other
def test_a_topic_is_found_by_its_id(broker: Broker, version: int, name: str | None) -> None:
    with RawClient(broker.port) as client:
        (made,) = client.ask(metadata_request("t"), version, MetadataResponse).topics
        assert ask(client, version, name, made.topic_id) == (0, "t", made.topic_id)
        other = bytes(range(16))
        assert ask(client, version, name, other) == (UNKNOWN_TOPIC_ID, None, other)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_cannot_be_asked_for_in_earlier_versions(broker: Broker, version: int) -> None:
    with RawClient(broker.port) as client:
        (made,) = client.ask(metadata_request("t"), version, MetadataResponse).topics
        assert made.topic_id != NO_UUID
        assert ask(client, version, None, made.topic_id)[0] == INVALID_REQUEST


def test_a_topic_asked_for_often_is_answered_once(broker: Broker) -> None:
    """A small request must not have a huge answer."""
    with RawClient(broker.port) as client:
        (made,) = client.ask(metadata_request("t"), 12, MetadataResponse).topics
        request = metadata_request(*["t", "new"] * 100)
        request.topics = [
            *(request.topics or ()),
            *[MetadataRequestTopic(name=None, topic_id=made.topic_id)] * 100,
        ]
        answer = client.ask(request, 12, MetadataResponse)
        assert [topic.name for topic in answer.topics] == ["t", "new", "t"]


def test_what_is_not_created_is_unknown_whatever_would_become_of_it(
    make_broker: Callable[..., Broker],
) -> None:
    broker = make_broker(settings={"default.replication.factor": "3", "auto.create.topics.enable": "false"})
    with RawClient(broker.port) as client:
        assert ask(client, 12, "t", NO_UUID)[0] == UNKNOWN_TOPIC
        assert ask(client, 12, "no topic", NO_UUID)[0] == INVALID_TOPIC
        topics = client.ask(metadata_request("t"), 12, MetadataResponse).topics
        assert [topic.error_code for topic in topics] == [UNKNOWN_TOPIC]


def test_a_topic_that_cannot_be_created_now_has_no_leader_yet(broker: Broker) -> None:
    assert broker._memory is not None
    with RawClient(broker.port) as client:
        broker._memory.fail("append", errno.ENOSPC, path_glob="*__cluster_metadata*", times=2)
        (topic,) = client.ask(metadata_request("t"), 12, MetadataResponse).topics
        assert WIRE_ERRORS[topic.error_code].name == "LEADER_NOT_AVAILABLE"
        find = FindCoordinatorRequest(key="g", key_type=0)
        answer = client.ask(find, 2, FindCoordinatorResponse)
        assert WIRE_ERRORS[answer.error_code].name == "COORDINATOR_NOT_AVAILABLE"
        assert client.ask(find, 2, FindCoordinatorResponse).error_code == 0
        (topic,) = client.ask(metadata_request("t"), 12, MetadataResponse).topics
        assert topic.error_code == 0
