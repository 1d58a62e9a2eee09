"""Where clients begin to read: by time, at the beginning and the end, at any offset they seek."""

from __future__ import annotations

import asyncio

import aiokafka
import confluent_kafka
import pytest

from tests.support.clients import (
    CLIENTS,
    Client,
    Message,
    confluent_consumer,
    confluent_next,
    create_topic,
    kafka,
    values,
)

START_MS = 1_750_000_000_000
TEN_BEFORE_THE_END = -2010  # librdkafka counts backwards from -2000
by_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


@by_client
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_offsets_for_times(client: Client, bootstrap: str, topic: str, codec: str) -> None:
    create_topic(bootstrap, topic, segment_bytes="1048576", index_interval_bytes="100")
    step_ms = 1000
    sent = [Message(b"x" * 100, timestamp_ms=START_MS + number * step_ms) for number in range(500)]
    client.produce(bootstrap, topic, sent, codec=codec)
    times = [0, START_MS, START_MS + 1, START_MS + 250 * step_ms, START_MS + 499 * step_ms]
    found = client.offsets(bootstrap, topic, [*times, START_MS + 499 * step_ms + 1])
    assert found == (0, 500, (0, 0, 1, 250, 499, None))


@by_client
def test_the_earliest_of_times_out_of_order(client: Client, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    for milliseconds in (50, 10, 90, 20):
        client.produce(bootstrap, topic, [Message(b"x", timestamp_ms=START_MS + milliseconds)])
    found = client.offsets(bootstrap, topic, [START_MS + each for each in (0, 20, 51, 90, 91)])
    assert found.for_times == (0, 0, 2, 2, None)


@by_client
def test_an_empty_partition(client: Client, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    assert client.offsets(bootstrap, topic, [START_MS]) == (0, 0, (None,))


@by_client
def test_every_offset_within_a_batch_can_be_read_from(client: Client, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    client.produce(bootstrap, topic, values(30), codec="lz4")
    for offset in (0, 1, 15, 29):
        first, *_ = client.consume(bootstrap, topic, 1, offset=offset)
        assert (first.offset, first.value) == (offset, values(30)[offset].value)


def test_confluent_seeks_back_and_forth(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    CLIENTS[0].produce(bootstrap, topic, values(1000))
    at = confluent_kafka.TopicPartition
    with confluent_consumer(bootstrap) as consumer:
        consumer.assign([at(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        assert confluent_next(consumer).offset == 0
        for offset in (900, 3, 999, 0):
            consumer.seek(at(topic, 0, offset))
            assert confluent_next(consumer).offset == offset
        consumer.assign([at(topic, 0, TEN_BEFORE_THE_END)])
        assert confluent_next(consumer).offset == 990


def test_kafka_python_seeks_back_and_forth(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    CLIENTS[2].produce(bootstrap, topic, values(1000))
    of = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, consumer_timeout_ms=20_000)
    try:
        consumer.assign([of])
        consumer.seek_to_beginning(of)
        assert next(consumer).offset == 0
        for offset in (900, 3, 999, 0):
            consumer.seek(of, offset)
            assert next(consumer).offset == offset
        consumer.seek_to_end(of)
        assert consumer.position(of) == 1000
    finally:
        consumer.close()


def test_aiokafka_seeks_back_and_forth(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    CLIENTS[1].produce(bootstrap, topic, values(1000))
    of = aiokafka.TopicPartition(topic, 0)

    async def seek() -> None:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        async with asyncio.timeout(20), consumer:
            consumer.assign([of])
            await consumer.seek_to_beginning(of)
            assert (await consumer.getone()).offset == 0
            for offset in (900, 3, 999, 0):
                consumer.seek(of, offset)
                assert (await consumer.getone()).offset == offset
            await consumer.seek_to_end(of)
            assert await consumer.position(of) == 1000

    asyncio.run(seek())


@by_client
def test_an_offset_beyond_the_end_is_out_of_range(client: Client, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    client.produce(bootstrap, topic, values(3))
    with pytest.raises(Exception, match=r"(?i)out.?of.?range"):
        client.consume(bootstrap, topic, 1, offset=4)
