"""Three Python clients behind one small face, so that one test asks the same of each, and mixes them.

`Confluent` is librdkafka, `AioKafka` is asyncio, `KafkaPython` is pure Python and idempotent by default. They
share no code with each other or with Barnabas. A client's own settings are passed on by its own names.

Everything waits with a deadline, and fails by saying what it waited for.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import aiokafka
import confluent_kafka
from confluent_kafka import admin as confluent_admin

with warnings.catch_warnings():  # it reads its schemas in a way that newer versions of Python discourage
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

DEADLINE_S = 120.0
Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """What is produced."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


class Received(NamedTuple):
    """What is consumed."""

    offset: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int


class Offsets(NamedTuple):
    """What a client is told of a partition."""

    beginning: int
    end: int
    for_times: tuple[int | None, ...]


class Client(Protocol):
    """What each of the clients can do."""

    name: str

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        **settings: Any,
    ) -> list[int]:
        """Send in this order, wait for all; their offsets (unless acks=0), or the client's error."""
        ...

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0, **settings: Any
    ) -> list[Received]:
        """Read that many from an offset on, by assignment."""
        ...

    def offsets(self, bootstrap: str, topic: str, times_ms: Sequence[int] = ()) -> Offsets:
        """The beginning and end of partition 0, and its offsets for times."""
        ...


def values(count: int, prefix: str = "value", size: int = 0) -> list[Message]:
    """Messages that can be told apart."""
    return [Message(f"{prefix}-{number:06d}".encode().ljust(size, b".")) for number in range(count)]


def until(done: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Call until it gives something true, and return that."""
    deadline = time.monotonic() + deadline_s
    while not (result := done()):
        assert time.monotonic() < deadline, f"no {what} after {deadline_s:.0f} s"
        time.sleep(0.005)
    return result


def create_topic(
    bootstrap: str, topic: str, partitions: int = 1, *, replicas: int = 1, **configs: str
) -> None:
    """Create a topic; its settings by Kafka's names, with _ for each dot."""
    admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})
    config = {name.replace("_", "."): value for name, value in configs.items()}
    new = confluent_admin.NewTopic(topic, partitions, replicas, config=config)
    admin.create_topics([new])[topic].result(DEADLINE_S)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic."""
    admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(DEADLINE_S)


class Confluent:
    name = "confluent"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        **settings: Any,
    ) -> list[int]:
        reports: list[tuple[Any, Any]] = []
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 1,
                **settings,
            }
        )
        for message in messages:
            named: dict[str, Any] = {"headers": list(message.headers)} if message.headers else {}
            if message.timestamp_ms is not None:
                named["timestamp"] = message.timestamp_ms
            producer.produce(
                topic,
                message.value,
                message.key,
                message.partition,
                on_delivery=lambda error, sent: reports.append((error, sent.offset())),
                **named,
            )
        assert producer.flush(DEADLINE_S) == 0, "messages still not delivered"
        for error, _ in reports:
            if error is not None:
                raise confluent_kafka.KafkaException(error)
        return [offset for _, offset in reports]

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0, **settings: Any
    ) -> list[Received]:
        with confluent_consumer(bootstrap, **settings) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])
            return [confluent_next(consumer) for _ in range(count)]

    def offsets(self, bootstrap: str, topic: str, times_ms: Sequence[int] = ()) -> Offsets:
        with confluent_consumer(bootstrap) as consumer:
            beginning, end = consumer.get_watermark_offsets(
                confluent_kafka.TopicPartition(topic, 0), timeout=DEADLINE_S
            )
            found = [
                consumer.offsets_for_times(
                    [confluent_kafka.TopicPartition(topic, 0, time_ms)], timeout=DEADLINE_S
                )[0].offset
                for time_ms in times_ms
            ]
        # librdkafka says "the end" where nothing is as late as that
        none = confluent_kafka.OFFSET_END
        return Offsets(beginning, end, tuple(None if offset == none else offset for offset in found))


@contextmanager
def confluent_consumer(bootstrap: str, **settings: Any) -> Iterator[confluent_kafka.Consumer]:
    """A consumer that commits nothing and resets nothing."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            **settings,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def confluent_next(consumer: confluent_kafka.Consumer, deadline_s: float = DEADLINE_S) -> Received:
    """The next message, errors raised."""
    message = consumer.poll(deadline_s)
    assert message is not None, f"no message after {deadline_s:.0f} s"
    if message.error():
        raise confluent_kafka.KafkaException(message.error())
    return Received(
        message.offset(),
        message.value(),
        message.key(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )


class AioKafka:
    name = "aiokafka"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        **settings: Any,
    ) -> list[int]:
        return asyncio.run(
            self._produce(
                messages,
                topic,
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                acks=acks if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                **settings,
            )
        )

    async def _produce(self, messages: Sequence[Message], topic: str, **settings: Any) -> list[int]:
        async with asyncio.timeout(DEADLINE_S), aiokafka.AIOKafkaProducer(**settings) as producer:
            waiting = [
                await producer.send(
                    topic,
                    message.value,
                    message.key,
                    message.partition,
                    timestamp_ms=message.timestamp_ms,
                    headers=list(message.headers),
                )
                for message in messages
            ]
            sent = await asyncio.gather(*waiting)
        return [-1 if one is None else one.offset for one in sent]

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0, **settings: Any
    ) -> list[Received]:
        return asyncio.run(self._consume(bootstrap, topic, count, partition, offset, settings))

    async def _consume(
        self, bootstrap: str, topic: str, count: int, partition: int, offset: int, settings: dict[str, Any]
    ) -> list[Received]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="none", **settings
        )
        assigned = aiokafka.TopicPartition(topic, partition)
        async with asyncio.timeout(DEADLINE_S), consumer:
            consumer.assign([assigned])
            consumer.seek(assigned, offset)
            found = [await consumer.getone() for _ in range(count)]
        return [Received(one.offset, one.value, one.key, tuple(one.headers), one.timestamp) for one in found]

    def offsets(self, bootstrap: str, topic: str, times_ms: Sequence[int] = ()) -> Offsets:
        return asyncio.run(self._offsets(bootstrap, topic, times_ms))

    async def _offsets(self, bootstrap: str, topic: str, times_ms: Sequence[int]) -> Offsets:
        of = aiokafka.TopicPartition(topic, 0)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        async with asyncio.timeout(DEADLINE_S), consumer:
            beginning = (await consumer.beginning_offsets([of]))[of]
            end = (await consumer.end_offsets([of]))[of]
            found = [(await consumer.offsets_for_times({of: time_ms}))[of] for time_ms in times_ms]
        return Offsets(beginning, end, tuple(None if one is None else one.offset for one in found))


class KafkaPython:
    name = "kafka-python"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        **settings: Any,
    ) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            **settings,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    message.value,
                    message.key,
                    list(message.headers),
                    message.partition,
                    message.timestamp_ms,
                )
                for message in messages
            ]
            return [future.get(DEADLINE_S).offset for future in futures]
        finally:
            producer.close(DEADLINE_S)

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0, **settings: Any
    ) -> list[Received]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            auto_offset_reset="none",
            consumer_timeout_ms=DEADLINE_S * 1000,
            **settings,
        )
        assigned = kafka.TopicPartition(topic, partition)
        try:
            consumer.assign([assigned])
            consumer.seek(assigned, offset)
            found = [next(consumer) for _ in range(count)]
        finally:
            consumer.close()
        return [Received(one.offset, one.value, one.key, tuple(one.headers), one.timestamp) for one in found]

    def offsets(self, bootstrap: str, topic: str, times_ms: Sequence[int] = ()) -> Offsets:
        of = kafka.TopicPartition(topic, 0)
        consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        try:
            beginning, end = consumer.beginning_offsets([of])[of], consumer.end_offsets([of])[of]
            found = [consumer.offsets_for_times({of: time_ms})[of] for time_ms in times_ms]
        finally:
            consumer.close()
        return Offsets(beginning, end, tuple(None if one is None else one.offset for one in found))


CLIENTS: tuple[Client, ...] = (Confluent(), AioKafka(), KafkaPython())
