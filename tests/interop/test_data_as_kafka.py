"""The same Produce and Fetch requests to Apache Kafka and to Barnabas, side by side."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.record import Record
from barnabas.testing import Broker
from tests.interop.admin_steps import create
from tests.interop.dump import dump, files
from tests.support.apache_kafka import ApacheKafka
from tests.support.raw_client import RawClient, produce_request, wait_until
from tests.support.session_fetches import EXPECTED, deleted_and_created_again
from tests.support.targets import NO_RETENTION

pytestmark = pytest.mark.java


class Side(NamedTuple):
    """A connection to one of the two, and where its files are."""

    client: RawClient
    data: Path


Sides = tuple[Side, Side]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Kafka, and Barnabas."""
    home = tmp_path_factory.mktemp("sides")
    with (
        ApacheKafka(home / "kafka", settings=NO_RETENTION) as kafka,
        Broker(home / "barnabas", NO_RETENTION) as broker,
        RawClient(kafka.port) as theirs,
        RawClient(broker.port) as ours,
    ):
        yield Side(theirs, kafka.data), Side(ours, home / "barnabas")


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
    for side in sides:
        create_topic(
            side.client,
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
        expected, got = (refused(side.client, topic, records, codec) for side in sides)
        assert got == expected, name
        assert len(got[3]) == {"all": 3, "some": 5, "one": 1, "times": 3, "both": 6}[name]


# ---- Fetch: topics of a session that come and go ----------------------------------------------------------


def test_session_of_a_topic_that_is_deleted_and_created_again(sides: Sides, topic: str) -> None:
    expected, got = (deleted_and_created_again(side.client, topic) for side in sides)
    assert got == expected == EXPECTED


# ---- files of a running node ------------------------------------------------------------------------------

INDEXES = (".index", ".timeindex")


def test_the_dump_tool_reads_the_indexes_of_a_running_node(sides: Sides, topic: str) -> None:
    """They exist before the first record, and have their entries soon after those of Kafka's."""
    for side in sides:
        create_topic(side.client, topic)
        wait_until(lambda side=side: produced(side, topic, 100, 0) == 0, "a leader")
        assert len(files(side.data, [f"{topic}-0"], INDEXES)) == 2
    for number in range(1, 40):
        assert [produced(side, topic, 1000, number) for side in sides] == [0, 0]
    indexes = [files(side.data, [f"{topic}-0"], INDEXES) for side in sides]
    assert [file.name for file in indexes[1]] == [file.name for file in indexes[0]]
    for theirs, ours in zip(*indexes, strict=True):
        expected = theirs.read_bytes()
        assert sum(map(bool, expected)) > 8
        wait_until(partial(same, ours, expected), f"the entries in {ours.name}")
    printed = [dump(side.data, files(side.data, [f"{topic}-0"], INDEXES)) for side in sides]
    assert printed[1] == printed[0]
    assert all(lines for lines in printed[1].values())


def same(file: Path, expected: bytes) -> bool:
    return file.read_bytes() == expected


def produced(side: Side, topic: str, size: int, number: int) -> int:
    """The error code of a batch of one record."""
    batch = build_batch([Record(0, 1_700_000_000_000 + number, b"k", bytes(size), ())])
    request = produce_request(topic, [b""])
    request.topic_data[0].partition_data[0].records = memoryview(batch)
    (answer,) = side.client.ask(request, 9, ProduceResponse).responses[0].partition_responses
    return answer.error_code
