"""A query that crashes anywhere reads every record once: what Spark does with a source, at random.

Spark writes where a batch ends before it is read, and that it is done after. Between any two steps the
process may go; the next one finds what is written, and asks a new reader for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.producer import Producer
from barnabas.spark.driving import seams
from barnabas.spark.options import parse_options
from barnabas.spark.stream_reader import StreamReader
from barnabas.testing import Broker
from tests.support.targets import NO_RETENTION

Written = dict[str, dict[str, int]]
STEPS = 40


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"auto.create.topics.enable": "false", **NO_RETENTION}) as running:
        yield running


class Topic:
    """A topic that is written to, and grows."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._bootstrap, self.name, self.counts = broker.bootstrap, name, [0, 0]
        asyncio.run(self._create())

    @property
    def partitions(self) -> int:
        return len(self.counts)

    async def _create(self) -> None:
        async with Admin(*seams(), self._bootstrap) as admin:
            await admin.create_topics([NewTopic(self.name, self.partitions, 1)])

    async def grow(self) -> None:
        self.counts.append(0)
        async with Admin(*seams(), self._bootstrap) as admin:
            await admin.create_partitions({self.name: self.partitions})

    async def send(self, count: int, partition: int) -> None:
        self.counts[partition] += count
        async with Producer(*seams(), self._bootstrap) as producer:
            for _ in range(count):
                await producer.send(self.name, b"", partition=partition)


class Query:
    """What Spark keeps in a checkpoint, and what it does next."""

    def __init__(self, options: dict[str, str], limit: ReadLimit) -> None:
        self._options, self._limit = options, limit
        self.ends: list[Written] = []  # of batches that were begun
        self.done = 0
        self.rows: list[tuple[int, int]] = []  # of batches that are done
        self.reader = StreamReader(parse_options(options, is_stream=True))

    def crash(self) -> None:
        self.reader.stop()
        self.reader = StreamReader(parse_options(self._options, is_stream=True))

    def plan(self) -> bool:
        """Whether there is a batch to do."""
        if len(self.ends) == self.done:
            start = self._start()
            end = self.reader.latestOffset(start, self._limit)
            if self.done == 0 or end != start:
                self.ends.append(end)
        return len(self.ends) > self.done

    def read(self) -> list[tuple[int, int]]:
        parts = self.reader.partitions(self._start(), self.ends[self.done])
        batches = [batch.to_pylist() for part in parts for batch in self.reader.read(part)]
        return [(row["partition"], row["offset"]) for rows in batches for row in rows]

    def commit(self, rows: list[tuple[int, int]]) -> None:
        self.rows += rows
        self.done += 1

    def _start(self) -> Written:
        return self.ends[self.done - 1] if self.done else self.reader.initialOffset()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("begin", ["earliest", "latest"])
def test_every_record_comes_once(broker: Broker, begin: str, seed: int) -> None:
    random, crashes = Random(seed), 0.2 * (seed % 4)  # some never do
    topic = Topic(broker, f"crashes-{begin}-{seed}")
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic.name,
        "startingOffsets": begin,
        "columns": "partition,offset",
        "mirrorOffsets": "false",
    }
    query = Query(options, random.choice([ReadAllAvailable(), ReadMaxRows(3)]))
    for _ in range(STEPS):
        if random.random() < crashes:
            query.crash()
        match random.choice(["send", "send", "grow", "batch", "batch", "batch"]):
            case "send":
                asyncio.run(topic.send(random.randint(1, 4), random.randrange(topic.partitions)))
            case "grow" if topic.partitions < 2 + seed % 3:
                asyncio.run(topic.grow())
            case "batch" if query.plan() and random.random() >= crashes:
                rows = query.read()
                if random.random() >= crashes:
                    query.commit(rows)
                else:
                    query.crash()
    while query.plan():
        query.commit(query.read())
    query.reader.stop()
    read: list[list[int]] = [[] for _ in topic.counts]
    for partition, offset in query.rows:
        read[partition].append(offset)
    begun = query.ends[0].get(topic.name, {}) if begin == "latest" else {}
    assert read == [list(range(begun.get(str(n), 0), count)) for n, count in enumerate(topic.counts)]
    assert query.rows
