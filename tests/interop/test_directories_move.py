"""Two log directories that Apache Kafka and Barnabas serve in turns: each finds what the other put where."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.core.settings.properties import parse_properties
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.testing import Broker
from tests.support.apache_kafka import ApacheKafka
from tests.support.raw_client import RawClient, wait_until

pytestmark = pytest.mark.java

WAIT_S = 60.0
PARTITIONS = 4
Sizes = dict[str, dict[str, int]]


def described(port: int, version: int = 4) -> Sizes:
    """By directory, how large each partition in it is; that of groups comes with the first who reads."""
    with RawClient(port) as client:
        answer = client.ask(DescribeLogDirsRequest(topics=None), version, DescribeLogDirsResponse)
    assert all(each.error_code == 0 for each in answer.results)
    return {
        Path(each.log_dir).name: {
            f"{topic.name}-{one.partition_index}": one.partition_size
            for topic in sorted(each.topics, key=lambda topic: topic.name)
            if not topic.name.startswith("__")
            for one in sorted(topic.partitions, key=lambda one: one.partition_index)
        }
        for each in answer.results
    }


def total(put: Sizes) -> int:
    return sum(len(each) for each in put.values())


def write(bootstrap: str, *topics: str, value: str) -> None:
    """Make those that do not exist, and send one record to every partition of each."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    known = admin.list_topics(timeout=WAIT_S).topics
    new = [NewTopic(each, PARTITIONS, 1) for each in topics if each not in known]
    for made in admin.create_topics(new).values() if new else ():
        made.result(WAIT_S)
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for topic in topics:
        for number in range(PARTITIONS):
            producer.produce(
                topic, value, partition=number, on_delivery=lambda error, _: error and failures.append(error)
            )
    assert producer.flush(WAIT_S) == 0
    assert not failures


def read(bootstrap: str, topic: str) -> list[list[str]]:
    """The values in each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        return [_values(consumer, TopicPartition(topic, number, 0)) for number in range(PARTITIONS)]
    finally:
        consumer.close()


def _end_offset(consumer: Consumer, partition: TopicPartition) -> int:
    """Where a partition ends, once its leader knows that it is."""
    found: list[int] = []

    def is_led() -> bool:
        with contextlib.suppress(KafkaException):
            found.append(consumer.get_watermark_offsets(partition, timeout=WAIT_S)[1])
        return bool(found)

    wait_until(is_led, "the partition is led")
    return found[0]


def _values(consumer: Consumer, partition: TopicPartition) -> list[str]:
    consumer.assign([partition])
    end_offset = _end_offset(consumer, partition)
    values: list[str] = []
    while len(values) < end_offset:
        message = consumer.poll(WAIT_S)
        assert message is not None, partition
        assert message.error() is None
        values.append(message.value().decode())
    return values


def barnabas(kafka: ApacheKafka, settings: Mapping[str, str]) -> Broker:
    """On the same directories, with the same server.properties."""
    properties = parse_properties((kafka.home / "server.properties").read_text())
    return Broker(kafka.data, {**properties, **settings})


def test_two_directories_are_served_in_turns(tmp_path: Path) -> None:
    log_dirs = {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    short = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "200"}
    kafka = ApacheKafka(tmp_path / "home", data=tmp_path / "a", settings={**log_dirs, **short})
    with kafka:
        write(kafka.bootstrap, "from.kafka", "gone", value="kafka")
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics(["gone"])["gone"].result(WAIT_S)
        wait_until(lambda: total(described(kafka.port)) == PARTITIONS, "its files are gone")
        put = described(kafka.port)
    assert all(put.values())

    broker = barnabas(kafka, log_dirs)
    with broker:
        assert described(broker.port) == put
        assert read(broker.bootstrap, "from.kafka") == [["kafka"]] * PARTITIONS
        write(broker.bootstrap, "from.kafka", "from.barnabas", value="barnabas")
        put = described(broker.port)
    assert total(put) == 2 * PARTITIONS
    assert [len(each) for each in put.values()] == [PARTITIONS] * 2
    with broker:
        assert described(broker.port) == put
        write(broker.bootstrap, "from.barnabas", value="again")
        put = described(broker.port)
        broker.kill()

    kafka.start()
    try:
        assert described(kafka.port) == put
        assert read(kafka.bootstrap, "from.kafka") == [["kafka", "barnabas"]] * PARTITIONS
        assert read(kafka.bootstrap, "from.barnabas") == [["barnabas", "again"]] * PARTITIONS
        write(kafka.bootstrap, "from.kafka", "from.barnabas", "third", value="kafka too")
        put = described(kafka.port)
    finally:
        kafka.kill()

    with broker:
        assert described(broker.port) == put
        assert read(broker.bootstrap, "from.barnabas") == [["barnabas", "again", "kafka too"]] * PARTITIONS
        assert read(broker.bootstrap, "third") == [["kafka too"]] * PARTITIONS
        write(broker.bootstrap, "third", value="end")
