"""A whole node, where its parts must agree: after a crash, and when it stops."""

from __future__ import annotations

import pytest

from barnabas.log.partition import PartitionLog
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.testing import Broker
from tests.support.raw_client import RawClient, produce_request, wait_until

PRODUCE = 9


def create(client: RawClient, name: str, **settings: str) -> None:
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()
    ]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    answer = client.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert [one.error_code for one in answer.topics] == [0]


def produce(client: RawClient, topic: str) -> None:
    answer = client.ask(produce_request(topic, [b"v"]), PRODUCE, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0


def log_of(broker: Broker, topic: str) -> PartitionLog | None:
    return broker.node._logs.opened(topic, 0)


@pytest.mark.parametrize("is_touched", [False, True])
def test_what_is_recovered_in_the_background_has_its_topics_settings(
    broker: Broker, is_touched: bool
) -> None:
    with RawClient(broker.port) as client:
        create(client, "t", retention_ms="-1", flush_messages="1")
        produce(client, "t")
    broker.kill()
    broker.start()
    wait_until(lambda: log_of(broker, "t") is not None, "it is recovered")
    if is_touched:
        with RawClient(broker.port) as client:
            produce(client, "t")
    log = log_of(broker, "t")
    assert log is not None
    assert (log.config.retention_ms, log.config.flush_messages) == (-1, 1)
    if is_touched:
        assert log.recovery_point == log.end_offset == 2  # its ack meant that it is on the disk
