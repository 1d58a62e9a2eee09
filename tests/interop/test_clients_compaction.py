"""Compacted topics as other people's clients see them: a reader from the beginning ends with the latest value
of every key, at the offsets that were acknowledged, and nothing else that was superseded is left.

Timestamps are the test's own, some time apart, so that every round of messages goes into a segment of its own
(`segment.ms`), and the last message, in the active segment, leaves all others to be compacted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from tests.support.clients import (
    CLIENTS,
    DEADLINE_S,
    Confluent,
    Message,
    Received,
    confluent_consumer,
    confluent_next,
    create_topic,
    kafka,
    until,
)
from tests.support.java_clients import NEW, OLD, run_java
from tests.support.targets import Target

JAVA = Path(__file__).resolve().parent / "java"
KEYS = 10
ROUNDS = 5
SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
}
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "10",
    "min_cleanable_dirty_ratio": "0.01",
    "file_delete_delay_ms": "100",
}

NewTarget = Callable[[Mapping[str, str]], Target]


class Writer:
    """Writes rounds of messages, each later than the one before, and knows what must be left of them."""

    def __init__(
        self, bootstrap: str, topic: str, begin_ms: int | None = None, apart_ms: int = 1000, **options: Any
    ) -> None:
        self.bootstrap, self.topic, self.options = bootstrap, topic, options
        self.apart_ms = apart_ms
        self.now_ms = int(time.time() * 1000) - 3600_000 if begin_ms is None else begin_ms
        self.latest: dict[bytes, tuple[int, bytes | None]] = {}
        self.last_offset = -1

    def write(self, values: Mapping[bytes, bytes | None]) -> None:
        self.now_ms += self.apart_ms
        messages = [Message(value, key, timestamp_ms=self.now_ms) for key, value in values.items()]
        offsets = Confluent().produce(self.bootstrap, self.topic, messages, **self.options)
        for (key, value), offset in zip(values.items(), offsets, strict=True):
            self.latest[key] = (offset, value)
        self.last_offset = offsets[-1]

    def write_rounds(self, count: int = ROUNDS, size: int = 0) -> None:
        for number in range(count):
            self.write({b"key-%d" % key: b"value-%d" % number + b"." * size for key in range(KEYS)})

    def left(self) -> list[tuple[int, bytes, bytes | None]]:
        return sorted((offset, key, value) for key, (offset, value) in self.latest.items())

    def read(self, bootstrap: str | None = None) -> list[tuple[int, bytes, bytes | None]]:
        """All that a reader from the beginning sees."""
        found: list[Received] = []
        with confluent_consumer(bootstrap or self.bootstrap) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(self.topic, 0, confluent_kafka.OFFSET_BEGINNING)])
            while not found or found[-1].offset < self.last_offset:
                found.append(confluent_next(consumer))
        return seen(found)

    def until_compacted(self) -> None:
        until(lambda: self.read() == self.left(), "compaction", 2 * DEADLINE_S)


def seen(received: list[Received]) -> list[tuple[int, bytes, bytes | None]]:
    return [(one.offset, one.key or b"", one.value) for one in received]


# ---- consumers that are asked for one message after another, and read ahead little -----------------------

SMALL_BYTES = 50_000
NextMessage = Callable[[], Received]


@contextmanager
def confluent_reader(bootstrap: str, topic: str) -> Iterator[NextMessage]:
    small = {"queued.max.messages.kbytes": 1, "fetch.message.max.bytes": SMALL_BYTES}
    with confluent_consumer(bootstrap, **small) as consumer:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        yield lambda: confluent_next(consumer)


@contextmanager
def aiokafka_reader(bootstrap: str, topic: str) -> Iterator[NextMessage]:
    async def make() -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            auto_offset_reset="none",
            max_partition_fetch_bytes=SMALL_BYTES,
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        consumer.seek(aiokafka.TopicPartition(topic, 0), 0)
        return consumer

    async def receive() -> Received:
        async with asyncio.timeout(DEADLINE_S):
            one = await consumer.getone()
        return Received(one.offset, one.value, one.key, tuple(one.headers), one.timestamp)

    with asyncio.Runner() as runner:
        consumer = runner.run(make())
        try:
            yield lambda: runner.run(receive())
        finally:
            runner.run(consumer.stop())


@contextmanager
def kafka_python_reader(bootstrap: str, topic: str) -> Iterator[NextMessage]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        auto_offset_reset="none",
        consumer_timeout_ms=DEADLINE_S * 1000,
        max_partition_fetch_bytes=SMALL_BYTES,
    )

    def receive() -> Received:
        one = next(consumer)
        return Received(one.offset, one.value, one.key, tuple(one.headers), one.timestamp)

    try:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        consumer.seek(kafka.TopicPartition(topic, 0), 0)
        yield receive
    finally:
        consumer.close()


# ---- what they see ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_every_client_sees_the_latest_value_of_every_key(
    new_target: NewTarget, topic: str, codec: str
) -> None:
    target = new_target(SETTINGS)
    create_topic(target.bootstrap, topic, 1, **COMPACTED)
    writer = Writer(target.bootstrap, topic, codec=codec, idempotent=True)
    writer.write_rounds()
    writer.write({b"key-1": None, b"key-7": None})
    writer.write({b"last": b"one"})
    writer.until_compacted()
    expected = writer.left()
    assert (b"key-7", None) in [(key, value) for _, key, value in expected]  # a day has not passed
    for client in CLIENTS:
        assert seen(client.consume(target.bootstrap, topic, len(expected))) == expected, client.name
        # one who comes back to an offset that is gone goes on behind it
        gone = expected[0][0] + 1 if expected[1][0] > expected[0][0] + 1 else expected[0][0] - 1
        later = [one for one in expected if one[0] > gone]
        assert seen(client.consume(target.bootstrap, topic, len(later), offset=gone)) == later, client.name
        offsets = client.offsets(target.bootstrap, topic)
        assert (offsets.beginning, offsets.end) == (0, writer.last_offset + 1), client.name


@pytest.mark.java
@pytest.mark.parametrize("version", [NEW, pytest.param(OLD, marks=pytest.mark.long)])
def test_java_consumers_see_the_same(new_target: NewTarget, topic: str, version: str) -> None:
    target = new_target(SETTINGS)
    create_topic(target.bootstrap, topic, 1, **COMPACTED)
    writer = Writer(target.bootstrap, topic, codec="lz4", idempotent=True)
    writer.write_rounds()
    writer.write({b"key-1": None})
    writer.write({b"last": b"one"})
    writer.until_compacted()
    left = {offset for offset, _, _ in writer.left()}
    gone = next(offset for offset in range(min(left) + 1, writer.last_offset) if offset not in left)
    lines = run_java(version, JAVA / "ReadFrom.java", target.bootstrap, topic, "0", str(gone))
    assert [line for line in lines if line[:1].isdigit()] == [
        f"{begin} {offset} {key.decode()} {'-' if value is None else value.decode()}"
        for begin in (0, gone)
        for offset, key, value in writer.left()
        if offset >= begin
    ]


def test_what_was_compacted_stays_so_when_the_broker_comes_back(new_target: NewTarget, topic: str) -> None:
    target = new_target(SETTINGS)
    create_topic(target.bootstrap, topic, 1, **COMPACTED)
    writer = Writer(target.bootstrap, topic)
    for number, end in enumerate((target.stop, target.kill)):
        writer.write_rounds(2)
        writer.write({b"last-%d" % number: b"one"})
        writer.until_compacted()
        end()
        target.start()
        writer.bootstrap = target.bootstrap
        assert writer.read() == writer.left()
    writer.write_rounds(2)
    writer.write({b"last": b"one"})
    writer.until_compacted()


def test_tombstones_go_when_their_time_has_come(new_target: NewTarget, topic: str) -> None:
    target = new_target(SETTINGS)
    create_topic(target.bootstrap, topic, 1, delete_retention_ms="0", **COMPACTED)
    writer = Writer(target.bootstrap, topic)
    writer.write({b"kept": b"1", b"gone": b"1"})
    writer.write({b"gone": None})
    writer.write({b"last": b"0"})

    def is_gone() -> bool:
        writer.write({b"last": b"again"})  # there is another pass only when there is something new
        return b"gone" not in [key for _, key, _ in writer.read()]

    until(is_gone, "end of a tombstone", 2 * DEADLINE_S)
    del writer.latest[b"gone"]
    writer.write({b"end": b"1"})
    writer.until_compacted()


@pytest.mark.parametrize("reader", [confluent_reader, aiokafka_reader, kafka_python_reader])
def test_a_consumer_in_the_middle_goes_on(
    new_target: NewTarget,
    topic: str,
    reader: Callable[[str, str], AbstractContextManager[NextMessage]],
) -> None:
    target = new_target(SETTINGS)
    # time enough to begin to read before anything is compacted
    create_topic(target.bootstrap, topic, 1, min_compaction_lag_ms="2000", **COMPACTED)
    writer = Writer(target.bootstrap, topic, int(time.time() * 1000), apart_ms=20)
    writer.write_rounds(size=20_000)
    writer.write({b"last": b"one"})
    with reader(target.bootstrap, topic) as next_message:
        received = [next_message() for _ in range(3)]
        writer.until_compacted()
        while received[-1].offset < writer.last_offset:
            received.append(next_message())
    offsets = [one.offset for one in received]
    assert offsets == sorted(set(offsets))
    assert len(offsets) < KEYS * ROUNDS  # most of it was not there any more
    assert {one.key: (one.offset, one.value) for one in received} == writer.latest


def test_compact_and_delete(new_target: NewTarget, topic: str) -> None:
    target = new_target(SETTINGS)
    now_ms = int(time.time() * 1000)
    configs = {**COMPACTED, "cleanup_policy": "compact,delete", "retention_ms": str(3600_000)}
    create_topic(target.bootstrap, topic, 1, **configs)
    old = Writer(target.bootstrap, topic, now_ms - 7200_000)
    old.write_rounds(2)
    old.write({b"old": b"1"})

    def beginning() -> int:
        return Confluent().offsets(target.bootstrap, topic).beginning

    until(lambda: beginning() > old.last_offset, "retention", 2 * DEADLINE_S)
    recent = Writer(target.bootstrap, topic, now_ms - 600_000)
    recent.write_rounds(3)
    recent.write({b"last": b"one"})
    recent.until_compacted()
    assert beginning() == old.last_offset + 1
