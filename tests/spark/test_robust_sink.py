"""A sink that cannot write: the query fails with an error that says why, and started again once that is put
right it goes on, with nothing lost and nothing twice."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

from barnabas.client.admin import ConfigChange, ResourceType
from barnabas.testing import Broker
from tests.support.raw_client import wait_until
from tests.support.spark_gate import Gate
from tests.support.spark_streams import TIMEOUT_S
from tests.support.spark_streams import run as run_stream
from tests.support.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SHORT = {
    "kafka_max_block_ms": "1500",
    "kafka_request_timeout_ms": "1000",
    "kafka_delivery_timeout_ms": "1500",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """The one that is written to."""
    with Broker(settings={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def topics(spark: SparkSession, broker: Broker) -> Topics:
    return Topics(spark, broker.bootstrap)


class Pipe:
    """A stream from a topic of one broker to a topic of another."""

    def __init__(self, source: Topics, target: Topics, name: str, place: Path) -> None:
        self.source, self.target, self.name, self._place = source, target, name, place
        self.sent: list[bytes | None] = []
        source.create(name)

    def send(self, *values: bytes) -> None:
        self.source.send(self.name, values)
        self.sent += values

    def run(self, **options: str) -> None:
        frame = self.source.stream(self.name, mirrorOffsets="false").select("value")
        run_stream(self.target.sink(frame, self.name, **SHORT, **options), self._place)

    def fails(self, said: str) -> None:
        with pytest.raises(StreamingQueryException, match=said):
            self.run()

    def is_whole(self) -> bool:
        return self.target.values(self.name) == sorted(self.sent, key=lambda value: value or b"")


@pytest.fixture
def pipe(
    spark: SparkSession, shared_broker: Broker, topics: Topics, tmp_path: Path, request: pytest.FixtureRequest
) -> Pipe:
    name = request.node.name.removeprefix("test_").replace("[", "-").rstrip("]")
    return Pipe(Topics(spark, shared_broker.bootstrap), topics, name, tmp_path / "checkpoint")


def set_config(topics: Topics, name: str, setting: str, value: str) -> None:
    change = ConfigChange(setting, value)
    topics.admin(lambda admin: admin.alter_configs(ResourceType.TOPIC, name, [change]))


def test_no_such_topic(pipe: Pipe) -> None:
    pipe.send(b"1", b"2")
    pipe.fails("UnknownTopic: topic 'no_such_topic': UNKNOWN_TOPIC_OR_PARTITION; create it first")
    pipe.target.create(pipe.name)
    pipe.run()
    assert pipe.is_whole()


def test_too_large(pipe: Pipe) -> None:
    pipe.target.create(pipe.name, max_message_bytes="1000")
    pipe.send(b"1", b"2")
    pipe.run()
    pipe.send(b"3", b"4" * 2000, b"5")
    pipe.fails(r"too_large-0: MESSAGE_TOO_LARGE.* raise max\.message\.bytes of the topic")
    set_config(pipe.target, pipe.name, "max.message.bytes", "10000")
    pipe.run()
    assert pipe.is_whole()


def test_a_full_disk(pipe: Pipe, broker: Broker) -> None:
    pipe.target.create(pipe.name)
    pipe.send(b"1", b"2")
    pipe.run()
    pipe.send(b"3", b"4")
    disk = broker._memory
    assert disk is not None
    disk.fail("append", errno.ENOSPC, path_glob=f"{pipe.name}-0/*")
    pipe.fails(
        "TimedOut: 2 records for a_full_disk-0 were not acknowledged .* refused with KAFKA_STORAGE_ERROR"
    )
    disk.heal()
    broker.restart()
    pipe.run()
    assert pipe.is_whole()


def test_a_broker_that_stays_away(pipe: Pipe, broker: Broker, tmp_path: Path) -> None:
    """It goes when some rows are written already, and comes back after the query has given up."""
    pipe.target.create(pipe.name)
    pipe.send(b"first")
    pipe.run()
    pipe.send(*(b"%-500d" % n for n in range(30_000)))
    begun = pipe.target.end(pipe.name)
    gate = Gate(tmp_path)
    frame = gate.in_front_of(pipe.source.stream(pipe.name, mirrorOffsets="false").select("value"))
    writer = pipe.target.sink(frame, pipe.name, **SHORT)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query = writer.start()
    gate.wait()
    wait_until(lambda: pipe.target.end(pipe.name) > begun, "rows are at the broker")
    broker.kill()
    gate.open()
    with pytest.raises(
        StreamingQueryException, match=rf"(TimedOut|BrokerNotReachable): .*{broker.bootstrap}"
    ):
        query.awaitTermination(TIMEOUT_S)
    broker.start()
    pipe.run()
    assert pipe.is_whole()
