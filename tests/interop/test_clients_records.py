"""What one client writes, the others read as it was: every codec, every part of a record, every ack."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from tests.support.clients import CLIENTS, Client, Message, create_topic, values

NOW_MS = 1_750_000_000_000
by_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)

ALL_KINDS = [
    Message(b"plain", timestamp_ms=NOW_MS),
    Message(b"with a key", b"key", timestamp_ms=NOW_MS + 1),
    Message(b"", b"an empty value", timestamp_ms=NOW_MS + 2),
    Message(None, b"no value", timestamp_ms=NOW_MS + 3),
    Message(b"an empty key", b"", timestamp_ms=NOW_MS + 4),
    Message(b"earlier", b"key", timestamp_ms=NOW_MS - 1_000_000_000),
    Message(b"headers", None, (("a", b"1"), ("a", b"2"), ("empty", b""), ("ü", "ß".encode())), NOW_MS + 5),
    *(Message(bytes([number]) * 3000, f"k{number}".encode(), (), NOW_MS + number) for number in range(40)),
]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_from_every_client_to_every_client(bootstrap: str, topic: str, codec: str) -> None:
    create_topic(bootstrap, topic, len(CLIENTS))
    for partition, writer in enumerate(CLIENTS):
        messages = [message._replace(partition=partition) for message in ALL_KINDS]
        assert writer.produce(bootstrap, topic, messages, codec=codec) == list(range(len(messages)))
    for reader in CLIENTS:
        for partition, writer in enumerate(CLIENTS):
            found = reader.consume(bootstrap, topic, len(ALL_KINDS), partition=partition)
            for offset, (sent, got) in enumerate(zip(ALL_KINDS, found, strict=True)):
                assert got == (offset, *sent[:3], sent.timestamp_ms), f"{writer.name} to {reader.name}"


@by_client
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(client: Client, bootstrap: str, topic: str, acks: str) -> None:
    create_topic(bootstrap, topic)
    offsets = client.produce(bootstrap, topic, values(100), acks=acks)
    if acks != "0":  # there, clients know of no offsets
        assert offsets == list(range(100))
    found = client.consume(bootstrap, topic, 100)
    assert [one.value for one in found] == [one.value for one in values(100)]


@by_client
def test_idempotent_producers_are_given_ids(client: Client, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    for start in (0, 50):
        offsets = client.produce(bootstrap, topic, values(50), idempotent=True, codec="lz4")
        assert offsets == list(range(start, start + 50))


@by_client
def test_read_committed(client: Client, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    client.produce(bootstrap, topic, values(10))
    name = "isolation.level" if client.name == "confluent" else "isolation_level"
    found = client.consume(bootstrap, topic, 10, **{name: "read_committed"})
    assert [one.offset for one in found] == list(range(10))


def test_the_brokers_time(bootstrap: str, topic: str) -> None:
    """message.timestamp.type=LogAppendTime: what the client says is replaced."""
    create_topic(bootstrap, topic, message_timestamp_type="LogAppendTime")
    for writer in CLIENTS:
        writer.produce(bootstrap, topic, [Message(b"1", timestamp_ms=1), Message(b"2", timestamp_ms=2)])
    for reader in CLIENTS:
        times = [one.timestamp_ms for one in reader.consume(bootstrap, topic, 6)]
        assert times == sorted(times)
        assert times[0] > NOW_MS


def test_keyless_records_are_refused_where_the_log_is_compacted(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, cleanup_policy="compact")
    for writer in CLIENTS:
        # aiokafka has no name for this error
        with pytest.raises(Exception, match=r"(?i)invalid.?record|failed to validate record|UnknownError"):
            writer.produce(bootstrap, topic, [Message(b"no key")])
        writer.produce(bootstrap, topic, [Message(b"a key", b"key")])
    assert CLIENTS[0].offsets(bootstrap, topic)[:2] == (0, len(CLIENTS))


def test_librdkafka_tells_of_each_record_whether_it_was_bad(bootstrap: str, topic: str) -> None:
    """Of a refused batch, the bad records have one error and the sound ones another."""
    create_topic(bootstrap, topic, cleanup_policy="compact")
    told: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Any) -> None:
        assert error is not None
        told[message.value()] = error.code()

    # the batch is sent when it is full, not before
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 60_000, "batch.num.messages": 6, "retries": 0}
    )
    for number in range(6):
        key = None if number in (1, 4, 5) else b"key"
        producer.produce(topic, b"%d" % number, key, partition=0, on_delivery=delivered)
    assert producer.flush(30) == 0
    bad, sound = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert told == {b"%d" % number: bad if number in (1, 4, 5) else sound for number in range(6)}
