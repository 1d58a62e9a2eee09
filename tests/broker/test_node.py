"""A whole node, where its parts must agree: after a crash, and when it stops."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

import pytest

from barnabas.log import housekeeping
from barnabas.log.directory import LogDirectory
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
    return broker.node.storage.logs.opened(topic, 0)


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


def test_a_full_disk_does_not_spoil_a_clean_stop(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with RawClient(broker.port) as client:
        create(client, "t")
        produce(client, "t")
    assert broker._memory is not None
    broker._memory.fail("append", errno.ENOSPC, path_glob="*__cluster_metadata*", times=1)
    broker.stop()
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert ["No space left" in line for line in lines] == [True, True]  # of the disk, and what came of it
    broker.start()
    assert broker.node.storage.logs.was_clean
    with RawClient(broker.port) as client:
        produce(client, "t")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_appends_that_the_disk_refuses_are_told_of_once(
    broker: Broker, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    with RawClient(broker.port) as client:
        create(client, "t")
        produce(client, "t")
        assert broker._memory is not None
        broker._memory.fail("append", number, path_glob="t-0/*", times=3)
        for _ in range(3):
            answer = client.ask(produce_request("t", [b"v"]), PRODUCE, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 56  # KAFKA_STORAGE_ERROR
        (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert line.getMessage().startswith("cannot append to ")
        produce(client, "t")


def test_an_error_in_the_background_stops_the_node_and_is_told(
    make_broker: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(directory: LogDirectory) -> None:
        raise ZeroDivisionError("no such thing")

    monkeypatch.setattr(housekeeping, "apply_retention", broken)
    broker = make_broker(settings={"log.retention.check.interval.ms": "10"})
    reason = broker.run(broker.node.failed())
    assert isinstance(reason, ZeroDivisionError)
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert line.exc_info is not None
