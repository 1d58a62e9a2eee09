"""Large messages: up to the limit and beyond it, and batches larger than what a reader asks for."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from tests.support.clients import CLIENTS, Client, Message, create_topic, values

START_MS = 1_750_000_000_000
DEFAULT_LIMIT = 1_048_588
by_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)

LARGE_SENDS: dict[str, dict[str, Any]] = {
    "confluent": {"message.max.bytes": 20_000_000},
    "aiokafka": {"max_request_size": 20_000_000, "max_batch_size": 20_000_000},
    "kafka-python": {"max_request_size": 20_000_000},
}
SMALL_FETCHES: dict[str, dict[str, Any]] = {
    "confluent": {"fetch.message.max.bytes": 100, "fetch.max.bytes": 1000, "message.max.bytes": 1000},
    "aiokafka": {"max_partition_fetch_bytes": 100, "fetch_max_bytes": 1000},
    "kafka-python": {"max_partition_fetch_bytes": 100, "fetch_max_bytes": 1000},
}


def of_batch_size(size: int) -> Message:
    """A message that comes to that many bytes as a batch of its own."""
    overhead = size - 100_000
    for _ in range(3):  # the lengths inside are of variable length themselves
        message = Message(b"v" * overhead, timestamp_ms=START_MS)
        overhead += size - len(build_batch([Record(0, START_MS, None, message.value, ())]))
    return message


@by_client
def test_up_to_the_default_limit_and_no_further(client: Client, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    fits, exceeds = of_batch_size(DEFAULT_LIMIT), of_batch_size(DEFAULT_LIMIT + 1)
    send = LARGE_SENDS[client.name]
    assert client.produce(bootstrap, topic, [fits], **send) == [0]
    with pytest.raises(Exception, match=r"(?i)message.*too.?large"):
        client.produce(bootstrap, topic, [exceeds], **send)
    assert client.produce(bootstrap, topic, values(1)) == [1]
    found = client.consume(bootstrap, topic, 2)
    assert [one.value for one in found] == [fits.value, values(1)[0].value]


@by_client
def test_a_topic_with_a_limit_of_its_own(client: Client, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, max_message_bytes="10485760")
    large = Message(b"10 MB." * 1_700_000)
    assert client.produce(bootstrap, topic, [large], **LARGE_SENDS[client.name]) == [0]
    assert client.consume(bootstrap, topic, 1)[0].value == large.value


@by_client
def test_batches_larger_than_the_fetch_limits(client: Client, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    for start in range(0, 30, 10):
        client.produce(bootstrap, topic, values(30, size=5000)[start : start + 10])
    found = client.consume(bootstrap, topic, 30, **SMALL_FETCHES[client.name])
    assert [one.value for one in found] == [one.value for one in values(30, size=5000)]
