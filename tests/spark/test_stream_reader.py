"""Streams as Spark runs them: micro-batches, restarts, new partitions, what is lost, and the group."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.producer import Producer
from barnabas.spark.driving import seams
from barnabas.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

TIMEOUT_S = 60


class Topic:
    """A topic to fill."""

    def __init__(self, broker: Broker, name: str, partitions: int = 1) -> None:
        self.broker, self.name = broker, name
        self.admin(lambda admin: admin.create_topics([NewTopic(name, partitions, 1)]))

    def admin(self, ask: Callable[[Admin], Any]) -> Any:
        async def work() -> Any:
            async with Admin(*seams(), self.broker.bootstrap) as admin:
                return await ask(admin)

        return asyncio.run(work())

    def send(self, count: int, partition: int = 0, first: int = 0) -> None:
        async def work() -> None:
            async with Producer(*seams(), self.broker.bootstrap) as producer:
                for n in range(first, first + count):
                    await producer.send(self.name, b"%d" % n, partition=partition)

        asyncio.run(work())


class Streaming:
    """A query that reads what is there, each time it is run, into what it returns."""

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoint: Path, **options: str) -> None:
        reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
        self._frame = reader.options(**{"startingOffsets": "earliest", **options}).load()
        self._checkpoint = checkpoint

    def run(self) -> list[list[tuple[int, int, str]]]:
        """Partition, offset and value of the rows of each micro-batch, in order."""
        batches: list[list[tuple[int, int, str]]] = []

        def take(frame: DataFrame, number: int) -> None:
            rows = frame.selectExpr("partition", "offset", "string(value)").collect()
            batches.append(sorted((row[0], row[1], row[2]) for row in rows))

        self.query = self.start(take)
        assert self.query.awaitTermination(TIMEOUT_S)
        return batches

    def start(self, take: Callable[[DataFrame, int], None]) -> StreamingQuery:
        writer = self._frame.writeStream.foreachBatch(take)
        return writer.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True).start()


def test_micro_batches_of_a_limited_size(spark: SparkSession, shared_broker: Broker, tmp_path: Path) -> None:
    topic = Topic(shared_broker, "stream-limits", 2)
    topic.send(90, 0)
    topic.send(10, 1)
    stream = Streaming(
        spark, shared_broker.bootstrap, tmp_path, subscribe=topic.name, maxOffsetsPerTrigger="40"
    )
    batches = stream.run()
    assert [len(batch) for batch in batches] == [40, 40, 20]
    assert sorted(row for batch in batches for row in batch) == [(0, n, str(n)) for n in range(90)] + [
        (1, n, str(n)) for n in range(10)
    ]
    progress = stream.query.lastProgress
    assert progress is not None
    source = progress.sources[0]
    assert (
        json.loads(source.endOffset)
        == json.loads(source.latestOffset)
        == {"stream-limits": {"0": 90, "1": 10}}
    )
