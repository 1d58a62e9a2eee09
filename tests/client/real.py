"""The client over real sockets and real time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.consumer import Consumer, ConsumerConfig, Reset
from barnabas.client.fetched import ConsumerRecord
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.core.clock import SystemClock
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import SystemRandom
from barnabas.core.workers import InlineWorkers

T = TypeVar("T")

EARLIEST = ConsumerConfig(reset=Reset.EARLIEST)


class Clients:
    """Makes clients of one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._seams = (OsNetwork(InlineWorkers()), SystemClock(), SystemRandom())

    def producer(self, config: ProducerConfig | None = None) -> Producer:
        return Producer(*self._seams, self.bootstrap, config)

    def consumer(self, config: ConsumerConfig = EARLIEST) -> Consumer:
        return Consumer(*self._seams, self.bootstrap, config)

    def admin(self) -> Admin:
        return Admin(*self._seams, self.bootstrap)

    async def topic(self, name: str, partitions: int = 1, *, replicas: int = 1, **configs: str) -> str:
        """Create a topic; underscores in the names of settings stand for dots."""
        async with self.admin() as admin:
            dotted = {key.replace("_", "."): value for key, value in configs.items()}
            await admin.create_topics([NewTopic(name, partitions, replicas, dotted)])
        return name

    async def read(
        self, topic: str, count: int, *, partitions: int = 1, config: ConsumerConfig = EARLIEST
    ) -> list[ConsumerRecord]:
        """The first so many records of a topic, or as many as there are."""
        async with self.consumer(config) as consumer:
            consumer.assign([(topic, partition) for partition in range(partitions)])
            records: list[ConsumerRecord] = []
            while len(records) < count:
                some = await consumer.poll(10_000)
                if not some:
                    break
                records += some
            return records


def real(bootstrap: str, work: Callable[[Clients], Awaitable[T] | Coroutine[Any, Any, T]]) -> T:
    """Run `work` with clients of the cluster at that address."""

    async def main() -> T:
        return await work(Clients(bootstrap))

    return asyncio.run(main())
