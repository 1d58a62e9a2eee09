"""Clients that write, and one that reads, all the while a test does something to the broker.

A writer sends numbers from 0 on, all to partition 0, with idempotence, until it is told to stop: what is then
in the partition is known. An error that it is told of is the test's to look at.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from typing import Any

import aiokafka
import confluent_kafka

from tests.support.clients import DEADLINE_S, confluent_consumer, kafka
from tests.support.java_steps import java_steps

PATIENCE_S = 90.0  # Apache Kafka takes a while to come back
LOOK_S = 0.01  # how often a writer in another process is asked how far it is


class Writer(ABC):
    """Writes numbers from 0 on in a thread, until told to stop; says how many are acknowledged."""

    def __init__(self, bootstrap: str, topic: str, request_timeout_ms: int = 30_000) -> None:
        """`request_timeout_ms`: how long a broker may be silent before another one is asked."""
        self.bootstrap = bootstrap
        self.topic = topic
        self.request_timeout_ms = request_timeout_ms
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

    @abstractmethod
    def write(self) -> None:
        """Send until `stopping` is set."""

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
            "socket.timeout.ms": self.request_timeout_ms,
            "request.timeout.ms": self.request_timeout_ms,
            "error_cb": self._told,
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

    def _told(self, error: Any) -> None:
        if error.fatal():  # any other is one of connections, and it tries again
            self.report(error)


class KafkaPythonWriter(Writer):
    def write(self) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=50,
            retry_backoff_ms=5,
            request_timeout_ms=self.request_timeout_ms,
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
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            retry_backoff_ms=5,
            request_timeout_ms=self.request_timeout_ms,
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


class JavaWriter(Writer):
    def write(self) -> None:
        with java_steps() as process:
            process.do(f"write {self.bootstrap} {self.topic} {self.request_timeout_ms}")
            while not self.stopping.wait(LOOK_S):
                (acknowledged,) = process.do("written")
                self.acknowledged = int(acknowledged)
            (acknowledged,) = process.do("finish")
            self.acknowledged = int(acknowledged)


class Reader:
    """Reads all the time, in a thread."""

    def __init__(self, bootstrap: str, topic: str, request_timeout_ms: int = 60_000) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._request_timeout_ms = request_timeout_ms
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
        settings = {
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 50,
            "socket.timeout.ms": self._request_timeout_ms,
        }
        with confluent_consumer(self._bootstrap, **settings) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(self._topic, 0, 0)])
            while not self._stopping.is_set():
                message = consumer.poll(0.05)
                if message is not None and not message.error():
                    self.values.append(int(message.value()))
