"""The broker stops, dies and comes back while clients write and read: they go on as if it had not.

What was acknowledged is read, once and in order, by readers who were there all the time and by one who comes
afterwards. Producers are idempotent: what they send again is not there twice.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from tests.support.clients import (
    CLIENTS,
    DEADLINE_S,
    confluent_consumer,
    create_topic,
    kafka,
    until,
)
from tests.support.targets import Target

RESTARTS = 3
BETWEEN = 300  # messages acknowledged from one restart to the next
PATIENCE_S = 90.0  # Apache Kafka takes a while to come back


@pytest.fixture(autouse=True)
def _sockets_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """kafka-python 3.0 does not close a socket whose connection was refused."""
    made: list[socket.socket] = []
    factory = kafka.net.inet.KafkaNetSocket
    original = factory.socket

    def make(self: Any, *arguments: Any) -> socket.socket:
        made.append(original(self, *arguments))
        return made[-1]

    monkeypatch.setattr(factory, "socket", make)
    yield
    for one in made:
        one.close()


class Writer:
    """Writes numbers from 0 on in a thread, until told to stop; says how many are acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.acknowledged = 0
        self.failures: list[object] = []
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop writing, and wait for what was written."""
        self.stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.write()
        except Exception as error:  # noqa: BLE001 - it belongs to the test, in another thread
            self.failures.append(error)

    def write(self) -> None:
        raise NotImplementedError

    def report(self, error: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(error)

    def value(self, number: int) -> bytes:
        return str(number).encode()


class ConfluentWriter(Writer):
    def write(self) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 20,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 5,
        }
        producer = confluent_kafka.Producer(settings)
        number = 0
        while not self.stopping.is_set():
            if len(producer) < 100:
                producer.produce(
                    self.topic,
                    self.value(number),
                    partition=0,
                    on_delivery=lambda error, _: self.report(error),
                )
                number += 1
            producer.poll(0 if number % 20 else 0.001)
        assert producer.flush(PATIENCE_S) == 0


class KafkaPythonWriter(Writer):
    def write(self) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=50,
            retry_backoff_ms=5,
        )
        number, waiting = 0, list[Any]()
        while not self.stopping.is_set():
            waiting.append(producer.send(self.topic, self.value(number), partition=0))
            number += 1
            if len(waiting) >= 50:
                self._reap(waiting)
        self._reap(waiting)
        producer.close()

    def _reap(self, waiting: list[Any]) -> None:
        for future in waiting:
            future.get(PATIENCE_S)
            self.acknowledged += 1
        waiting.clear()


class AioKafkaWriter(Writer):
    def write(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, retry_backoff_ms=5
        )
        number = 0
        async with producer:
            while not self.stopping.is_set():
                waiting = []
                for _ in range(50):
                    waiting.append(await producer.send(self.topic, self.value(number), partition=0))
                    number += 1
                await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)
                self.acknowledged += len(waiting)


class Reader:
    """Reads all the time, in a thread."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self.values: list[int] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        settings = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 50}
        with confluent_consumer(self._bootstrap, **settings) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(self._topic, 0, 0)])
            while not self._stopping.is_set():
                message = consumer.poll(0.05)
                if message is not None and not message.error():
                    self.values.append(int(message.value()))


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("kind", [ConfluentWriter, AioKafkaWriter, KafkaPythonWriter])
def test_clients_go_on_when_the_broker_comes_back(
    kind: type[Writer], how: str, new_target: Callable[[Mapping[str, str]], Target], topic: str
) -> None:
    target = new_target({})
    create_topic(target.bootstrap, topic)
    with kind(target.bootstrap, topic) as writer:
        with Reader(target.bootstrap, topic) as reader:
            for _ in range(RESTARTS):
                wanted = writer.acknowledged + BETWEEN

                def moved_on(wanted: int = wanted) -> bool:
                    assert not writer.failures
                    return writer.acknowledged >= wanted and len(reader.values) >= wanted - BETWEEN

                until(moved_on, f"{BETWEEN} more messages", PATIENCE_S)
                getattr(target, how)()
                target.start()
            until(moved_on, "progress after the last restart", PATIENCE_S)
            writer.finish()
            assert not writer.failures
            count = writer.acknowledged
            until(lambda: len(reader.values) >= count, f"{count} messages read", PATIENCE_S)
        found = CLIENTS[0].consume(target.bootstrap, topic, count)
        end = CLIENTS[0].offsets(target.bootstrap, topic).end
    assert [int(one.value or b"") for one in found] == list(range(count))
    assert reader.values == list(range(count))
    assert end == count
