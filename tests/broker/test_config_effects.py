"""What is altered takes effect at once, on open logs and connected clients, and stays."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Iterator

import pytest

from barnabas.broker.settings.current_settings import CurrentSettings
from barnabas.controller.decisions import Decision
from barnabas.core.settings.security import UnsupportedSetting
from barnabas.core.settings.sources import resolve
from barnabas.log.config import LogConfig
from barnabas.metadata.delta import Delta
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.metadata.records import ConfigRecord
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.records.batch import BatchHeader
from barnabas.testing import Broker
from tests.support.configs import (
    BROKER,
    DELETE,
    DONE,
    LOGGER,
    SET,
    TOPIC,
    alter,
    replace,
    value_of,
)
from tests.support.images import image_of
from tests.support.raw_client import (
    RawClient,
    fetch_request,
    metadata_request,
    produce_request,
    wait_until,
)

MESSAGE_TOO_LARGE, INVALID_RECORD = 10, 87
EARLIEST = -2


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings={"log.retention.check.interval.ms": "10"}) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as connected:
        # what producers send here is years old
        assert alter(connected, BROKER, "", ("log.retention.ms", SET, "-1")) == DONE
        connected.ask(metadata_request("t"), 12, MetadataResponse)
        yield connected


def produced(client: RawClient, *values: bytes) -> int:
    """The error of one batch."""
    response = client.ask(produce_request("t", list(values)), 9, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


def earliest(client: RawClient) -> int:
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=EARLIEST)
    topics = [ListOffsetsTopic(name="t", partitions=[asked])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
    return client.ask(request, 5, ListOffsetsResponse).topics[0].partitions[0].offset


def config_of(broker: Broker) -> LogConfig:
    """What the open log of t heeds."""

    async def look() -> LogConfig:
        services = broker.node.services
        topic = services.image.topics_by_name["t"]
        return (await services.replicas.leader(topic, 0)).log.config

    return broker.run(look())


def test_the_largest_message(client: RawClient) -> None:
    message = bytes(2000)
    assert produced(client, message) == 0
    assert alter(client, TOPIC, "t", ("max.message.bytes", SET, "1500")) == DONE
    assert produced(client, message) == MESSAGE_TOO_LARGE
    assert alter(client, TOPIC, "t", ("max.message.bytes", DELETE, None)) == DONE
    assert produced(client, message) == 0
    assert alter(client, BROKER, "", ("message.max.bytes", SET, "1500")) == DONE
    assert produced(client, message) == MESSAGE_TOO_LARGE
    assert alter(client, BROKER, "1", ("message.max.bytes", SET, "3000")) == DONE
    assert produced(client, message) == 0


def test_retention(client: RawClient) -> None:
    for _ in range(3):
        assert produced(client, b"old") == 0
    assert earliest(client) == 0
    assert alter(client, TOPIC, "t", ("retention.ms", SET, "1000")) == DONE
    wait_until(lambda: earliest(client) == 3, "what is older than a second to go")


def test_retention_of_all_topics(client: RawClient) -> None:
    assert produced(client, b"old") == 0
    assert earliest(client) == 0
    assert alter(client, BROKER, "1", ("log.retention.ms", SET, "1000")) == DONE
    wait_until(lambda: earliest(client) == 1, "what is older than a second to go")


def test_without_a_policy_everything_stays(broker: Broker, client: RawClient) -> None:
    assert alter(client, TOPIC, "t", ("cleanup.policy", SET, ""), ("retention.ms", SET, "1")) == DONE
    assert produced(client, b"old") == 0
    assert config_of(broker).cleanup_policy == frozenset()
    assert earliest(client) == 0


def test_whose_time_a_message_bears(client: RawClient) -> None:
    assert produced(client, b"a") == 0
    assert alter(client, TOPIC, "t", ("message.timestamp.type", SET, "LogAppendTime")) == DONE
    assert produced(client, b"b") == 0
    times = []
    for offset in range(2):
        response = client.ask(fetch_request("t", offset=offset, max_bytes=1), 12, FetchResponse)
        records = response.responses[0].partitions[0].records
        assert records is not None
        times.append(BatchHeader.parse(bytes(records)).max_timestamp)
    assert times[0] == 1_700_000_000_000
    assert times[1] > times[0]


def test_a_compacted_topic_wants_keys_at_once(client: RawClient) -> None:
    assert produced(client, b"no key") == 0
    assert alter(client, TOPIC, "t", ("cleanup.policy", SET, "compact")) == DONE
    assert produced(client, b"no key") == INVALID_RECORD


@pytest.mark.parametrize(
    ("topic", "broker_wide", "value", "field"),
    [
        ("segment.bytes", "log.segment.bytes", "2000000", "segment_bytes"),
        ("segment.ms", "log.roll.ms", "5000", "segment_ms"),
        ("segment.jitter.ms", "log.roll.jitter.ms", "500", "segment_jitter_ms"),
        ("segment.index.bytes", "log.index.size.max.bytes", "4000", "segment_index_bytes"),
        ("index.interval.bytes", "log.index.interval.bytes", "10", "index_interval_bytes"),
        ("retention.bytes", "log.retention.bytes", "99", "retention_bytes"),
        ("flush.messages", "log.flush.interval.messages", "1", "flush_messages"),
        ("flush.ms", "log.flush.interval.ms", "7", "flush_ms"),
        ("file.delete.delay.ms", "log.segment.delete.delay.ms", "9", "file_delete_delay_ms"),
        (
            "message.timestamp.before.max.ms",
            "log.message.timestamp.before.max.ms",
            "8",
            "timestamp_before_max_ms",
        ),
        (
            "message.timestamp.after.max.ms",
            "log.message.timestamp.after.max.ms",
            "8",
            "timestamp_after_max_ms",
        ),
        ("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", "8", "min_compaction_lag_ms"),
        ("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", "8", "max_compaction_lag_ms"),
        ("delete.retention.ms", "log.cleaner.delete.retention.ms", "8", "delete_retention_ms"),
        (None, "producer.id.expiration.ms", "77", "producer_id_expiration_ms"),
    ],
)
def test_an_open_log_heeds_what_is_altered(
    broker: Broker, client: RawClient, topic: str | None, broker_wide: str, value: str, field: str
) -> None:
    assert produced(client, b"opens the log") == 0
    before = getattr(config_of(broker), field)
    if topic is not None:
        assert alter(client, TOPIC, "t", (topic, SET, value)) == DONE
        assert getattr(config_of(broker), field) == int(value) != before
        assert replace(client, TOPIC, "t", []) == DONE
    assert getattr(config_of(broker), field) == before
    assert alter(client, BROKER, "1", (broker_wide, SET, value)) == DONE
    assert getattr(config_of(broker), field) == int(value)


def test_how_many_may_connect(broker: Broker, client: RawClient) -> None:
    assert alter(client, BROKER, "1", ("max.connections.per.ip", SET, "2")) == DONE
    with RawClient(broker.port) as second:
        assert second.ask(metadata_request("t"), 12, MetadataResponse).topics
        with RawClient(broker.port) as third:
            assert third.is_closed()
        overrides = "127.0.0.1:3,127.0.0.9:0"
        assert alter(client, BROKER, "", ("max.connections.per.ip.overrides", SET, overrides)) == DONE
        with RawClient(broker.port) as third:
            assert third.ask(metadata_request("t"), 12, MetadataResponse).topics
            assert alter(client, BROKER, "", ("max.connections", SET, "1")) == DONE
            with RawClient(broker.port) as fourth:
                assert fourth.is_closed()
            # whoever was there may stay
            assert third.ask(metadata_request("t"), 12, MetadataResponse).topics


def test_how_logs_are_compacted(broker: Broker, client: RawClient) -> None:
    async def now() -> tuple[int, int]:
        settings = broker.node.services._settings.cleaner()
        return settings.backoff_ms, settings.io_buffer_bytes

    changes = [("log.cleaner.backoff.ms", SET, "123"), ("log.cleaner.io.buffer.size", SET, "4567")]
    assert alter(client, BROKER, "", *changes) == DONE
    assert broker.run(now()) == (123, 4567)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_is_altered_stays_after_a_restart(broker: Broker, how: str) -> None:
    with RawClient(broker.port) as client:
        client.ask(metadata_request("t"), 12, MetadataResponse)
        assert alter(client, BROKER, "1", ("max.connections", SET, "1")) == DONE
        assert alter(client, TOPIC, "t", ("retention.bytes", SET, "99")) == DONE
    getattr(broker, how)()
    broker.start()
    with RawClient(broker.port) as client:
        assert value_of(client, TOPIC, "t", "retention.bytes") == "99"
        assert value_of(client, BROKER, "1", "max.connections") == "1"
        with RawClient(broker.port) as second:
            assert second.is_closed()


@pytest.fixture
def some_logger() -> Iterator[logging.Logger]:
    """One that stands below another and has no level of its own."""
    logging.getLogger("barnabas.of_a_test")
    logger = logging.getLogger("barnabas.of_a_test.below")
    yield logger
    logging.getLogger("barnabas.of_a_test").setLevel(logging.NOTSET)
    logger.setLevel(logging.NOTSET)


def test_levels_of_loggers(client: RawClient, some_logger: logging.Logger) -> None:
    above = "barnabas.of_a_test"
    assert alter(client, LOGGER, "1", (above, SET, "ERROR")) == DONE
    assert not some_logger.isEnabledFor(logging.WARNING)
    assert value_of(client, LOGGER, "1", some_logger.name) == "ERROR"
    both = [(some_logger.name, SET, "TRACE"), (above, DELETE, None)]
    assert alter(client, LOGGER, "1", *both, validate_only=True) == DONE
    assert value_of(client, LOGGER, "1", some_logger.name) == "ERROR"
    assert alter(client, LOGGER, "1", (some_logger.name, SET, "TRACE")) == DONE
    assert some_logger.isEnabledFor(logging.DEBUG)
    assert value_of(client, LOGGER, "1", some_logger.name) == "TRACE"
    assert alter(client, LOGGER, "1", (some_logger.name, DELETE, None)) == DONE
    assert value_of(client, LOGGER, "1", some_logger.name) == "ERROR"


def test_what_cannot_be_heeded_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    altered = {"log.segment.bytes": "5", "node.id": "7", "max.connections": "9", "of.a.plug.in": "x"}
    image = image_of(
        *(
            ConfigRecord(resource_type=BROKER, resource_name="1", name=name, value=value)
            for name, value in altered.items()
        )
    )
    with caplog.at_level(logging.ERROR, "barnabas.settings"):
        settings = CurrentSettings(1, MetadataPublisher(image), resolve()).broker
    assert settings.dynamic == {"max.connections": "9", "of.a.plug.in": "x"}
    assert settings.integer("log.segment.bytes") == 1 << 30
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "log.segment.bytes" in told[0]
    assert "node.id" in told[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("log.flush.interval.ms", "-1"), ("log.roll.ms", "0"), ("max.connections.per.ip.overrides", "nobody")],
)
def test_a_node_starts_with_what_no_topic_can_have(broker: Broker, name: str, value: str) -> None:
    """Kafka takes the first for any broker, and all of them for all brokers while one has something else."""
    record = ConfigRecord(resource_type=BROKER, resource_name="", name=name, value=value)

    async def leave() -> None:
        await broker.node.quorum.controller.submit(lambda image: Decision([record], None))

    broker.run(leave())
    broker.restart()
    with RawClient(broker.port) as client:
        client.ask(metadata_request("t"), 12, MetadataResponse)
        assert produced(client, b"a") == 0
        assert alter(client, BROKER, "", (name, DELETE, None)) == DONE
        assert produced(client, b"a") == 0


def test_a_topic_may_have_what_an_older_kafka_took(client: RawClient, broker: Broker) -> None:
    """Kafka 3 had no minimum of a mebibyte; the log goes by the default, and whoever looks sees the value."""
    record = ConfigRecord(resource_type=TOPIC, resource_name="t", name="segment.bytes", value="1000")

    async def leave() -> None:
        await broker.node.quorum.controller.submit(lambda image: Decision([record], None))

    broker.run(leave())
    assert produced(client, b"a") == 0
    assert config_of(broker).segment_bytes == 1 << 30
    assert value_of(client, TOPIC, "t", "segment.bytes") == "1000"
    assert alter(client, TOPIC, "t", ("segment.bytes", SET, "2000000")) == DONE
    assert config_of(broker).segment_bytes == 2_000_000


def test_a_node_does_not_start_under_what_it_cannot_enforce(broker: Broker) -> None:
    """Kafka may have left such a setting in the metadata."""
    name = "listener.name.plaintext.ssl.keystore.location"
    record = ConfigRecord(resource_type=BROKER, resource_name="1", name=name, value="/x")

    async def leave() -> None:
        await broker.node.quorum.controller.submit(lambda image: Decision([record], None))

    broker.run(leave())
    broker.stop()
    with pytest.raises(UnsupportedSetting, match="no TLS"):
        broker.start()


def test_subscribers_are_told_of_every_change() -> None:
    async def run() -> None:
        metadata = MetadataPublisher()
        settings = CurrentSettings(1, metadata, resolve())
        told: list[int] = []
        settings.subscribe(lambda now: told.append(now.integer("max.connections")))
        for value in ("5", "6", None):
            record = ConfigRecord(
                resource_type=BROKER, resource_name="1", name="max.connections", value=value
            )
            delta = Delta(metadata.image)
            delta.replay(record)
            metadata.publish(delta.apply(1, 1), delta)
        assert told == [5, 6, 2**31 - 1]

    asyncio.run(run())


def test_many_settings_altered_at_once_are_one_change(broker: Broker, client: RawClient) -> None:
    """To tell after every one of them would take the square of their number."""
    told: list[dict[str, str]] = []
    broker.node.services._settings.subscribe(lambda now: told.append(now.dynamic))
    names = [f"of.a.plug.in.{number}" for number in range(100)]
    assert alter(client, BROKER, "1", *((name, SET, "x") for name in names)) == DONE
    assert told == [dict.fromkeys(sorted(names), "x")]


def test_an_alteration_that_cannot_be_written_is_answered(broker: Broker) -> None:
    assert broker._memory is not None
    with RawClient(broker.port) as client:
        client.ask(metadata_request("t"), 12, MetadataResponse)
        broker._memory.fail("append", errno.ENOSPC, path_glob="*__cluster_metadata*", times=2)
        for answer in (
            alter(client, TOPIC, "t", ("retention.ms", SET, "7")),
            replace(client, TOPIC, "t", [("retention.ms", "7")]),
        ):
            assert answer.error == "NOT_CONTROLLER"
            assert "No space left" in (answer.message or "")
        assert alter(client, TOPIC, "t", ("retention.ms", SET, "7")) == DONE
