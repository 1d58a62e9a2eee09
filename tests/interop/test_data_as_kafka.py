"""The same Produce and Fetch requests to Apache Kafka and to Barnabas, side by side."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.record import Record
from barnabas.testing import Broker
from tests.interop.admin_steps import create
from tests.support.apache_kafka import ApacheKafka
from tests.support.raw_client import RawClient, produce_request
from tests.support.session_fetches import EXPECTED, deleted_and_created_again

pytestmark = pytest.mark.java

Sides = tuple[RawClient, RawClient]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """A connection to Kafka, and one to Barnabas."""
    home = tmp_path_factory.mktemp("sides")
    with (
        ApacheKafka(home / "kafka") as kafka,
        Broker(home / "barnabas") as broker,
        RawClient(kafka.port) as theirs,
        RawClient(broker.port) as ours,
    ):
        yield theirs, ours


def create_topic(client: RawClient, topic: str, **configs: str) -> None:
    step = create(topic, 1, configs={name.replace("_", "."): value for name, value in configs.items()})
    (created,) = client.ask(step.request, step.version, step.response).topics  # type: ignore[attr-defined]
    assert created.error_code == 0, created


# ---- Produce: which records of a batch are bad ------------------------------------------------------------


def refused(client: RawClient, topic: str, records: list[Record], codec: Codec) -> Any:
    """The answer to a batch: its error, its message and all records that it names."""
    request = produce_request(topic, [b""])
    request.topic_data[0].partition_data[0].records = memoryview(build_batch(records, codec=codec))
    (answer,) = client.ask(request, 9, ProduceResponse).responses[0].partition_responses
    named = [(one.batch_index, one.batch_index_error_message) for one in answer.record_errors]
    bounds = re.compile(r"\[\d+, \d+\]")  # they depend on when each was asked
    return (
        answer.error_code,
        answer.base_offset,
        answer.error_message,
        [(index, bounds.sub("[...]", text or "")) for index, text in named],
    )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_every_bad_record_of_a_batch_is_named(sides: Sides, topic: str, codec: Codec) -> None:
    for client in sides:
        create_topic(
            client,
            topic,
            cleanup_policy="compact",
            message_timestamp_before_max_ms="3600000",
            message_timestamp_after_max_ms="3600000",
        )
    now_ms = time.time_ns() // 1_000_000
    keys = {"all": [None] * 3, "some": [b"k", None, b"k", None, None, None, None], "one": [b"k", None]}
    batches = {
        name: [Record(i, now_ms, key, b"v", ()) for i, key in enumerate(of)] for name, of in keys.items()
    }
    batches["times"] = [Record(i, now_ms if i % 2 else i, b"k", b"v", ()) for i in range(6)]
    batches["both"] = [Record(i, now_ms if i < 4 else i, b"k" if i % 2 else None, b"v", ()) for i in range(8)]
    for name, records in batches.items():
        expected, got = (refused(client, topic, records, codec) for client in sides)
        assert got == expected, name
        assert len(got[3]) == {"all": 3, "some": 5, "one": 1, "times": 3, "both": 6}[name]


# ---- Fetch: topics of a session that come and go ----------------------------------------------------------


def test_session_of_a_topic_that_is_deleted_and_created_again(sides: Sides, topic: str) -> None:
    expected, got = (deleted_and_created_again(client, topic) for client in sides)
    assert got == expected == EXPECTED
