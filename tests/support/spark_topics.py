"""Topics of one broker: made, filled and read back without Spark, and read and written by it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.consumer import Consumer, ConsumerConfig, Reset
from barnabas.client.fetched import ConsumerRecord
from barnabas.client.offsets import LATEST
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.spark.driving import seams
from tests.support.spark_streams import run as run_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

T = TypeVar("T")
STABLE_S = 20


def committed_records(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """What a reader of committed records finds, by partition and offset; nothing may be left open."""

    async def work() -> list[ConsumerRecord]:
        async with Admin(*seams(), bootstrap) as admin, asyncio.timeout(STABLE_S):
            described = (await admin.describe_topics([topic]))[topic]
            places = [(topic, each.partition) for each in described.partitions]
            while True:  # markers may come after the answer to a commit
                stable = await admin.list_offsets(dict.fromkeys(places, LATEST), read_committed=True)
                if stable == await admin.list_offsets(dict.fromkeys(places, LATEST)):
                    break
                await asyncio.sleep(0.01)
        config = ConsumerConfig(reset=Reset.EARLIEST, read_committed=True)
        found: list[ConsumerRecord] = []
        async with Consumer(*seams(), bootstrap, config) as consumer:
            consumer.assign(places)
            for place, end in stable.items():
                while await consumer.position(place) < end.offset:
                    found += await consumer.poll(timeout_ms=100)
        return sorted(found, key=lambda record: (record.partition, record.offset))

    return asyncio.run(work())


class Topics:
    """The topics of the broker at that address."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self._spark, self.bootstrap = spark, bootstrap

    # ---- without Spark -----------------------------------------------------------------------------------

    def admin(self, ask: Callable[[Admin], Awaitable[T]]) -> T:
        async def work() -> T:
            async with Admin(*seams(), self.bootstrap) as admin:
                return await ask(admin)

        return asyncio.run(work())

    def create(self, name: str, partitions: int = 1, *, replicas: int = 1, **configs: str) -> str:
        """Settings by name, with underscores for dots."""
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        self.admin(lambda admin: admin.create_topics([NewTopic(name, partitions, replicas, configs=dotted)]))
        return name

    def send(self, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
        """Values, in this order."""
        column = pa.array([partition] * len(values), pa.int32())
        self.send_table(topic, pa.table({"value": pa.array(values, pa.binary()), "partition": column}))

    def send_table(self, topic: str, table: pa.Table, config: ProducerConfig | None = None) -> None:
        async def work() -> None:
            async with Producer(*seams(), self.bootstrap, config) as producer:
                assert await (await producer.send_table(table, topic)) == table.num_rows

        asyncio.run(work())

    def records(self, topic: str) -> list[ConsumerRecord]:
        return committed_records(self.bootstrap, topic)

    def values(self, topic: str) -> list[bytes | None]:
        """The values of these, sorted; null comes first."""
        return sorted((each.value for each in self.records(topic)), key=lambda value: value or b"")

    def end(self, topic: str) -> int:
        """Where partition 0 ends, committed or not."""
        found = self.admin(lambda admin: admin.list_offsets({(topic, 0): LATEST}))
        return next(iter(found.values())).offset

    # ---- by Spark ----------------------------------------------------------------------------------------

    def read(self, topic: str | None, **options: Any) -> DataFrame:
        """A batch; options by name, with underscores for dots."""
        return self._reading(self._spark.read, topic, options).load()

    def stream(self, topic: str | None, **options: Any) -> DataFrame:
        options = {"startingOffsets": "earliest", "fetchOffset_retryIntervalMs": "10", **options}
        return self._reading(self._spark.readStream, topic, options).load()

    def write(self, frame: DataFrame, topic: str | None = None, **options: Any) -> None:
        self._writing(frame.write, topic, options).mode("append").save()

    def sink(self, frame: DataFrame, topic: str | None = None, **options: Any) -> DataStreamWriter:
        written: DataStreamWriter = self._writing(frame.writeStream, topic, options)
        return written

    def pipe(self, source: str, target: str, checkpoint: Path, **options: Any) -> StreamingQuery:
        """All of a topic to another, in one go."""
        frame = self.stream(source, mirrorOffsets="false").select("key", "value")
        return run_stream(self.sink(frame, target, **options), checkpoint)

    def _reading(self, reader: Any, topic: str | None, options: dict[str, Any]) -> Any:
        named = {} if topic is None else {"subscribe": topic}
        return reader.format("barnabas").options(**self._options({**named, **options}))

    def _writing(self, writer: Any, topic: str | None, options: dict[str, Any]) -> Any:
        named = {} if topic is None else {"topic": topic}
        return writer.format("barnabas").options(**self._options({**named, **options}))

    def _options(self, given: dict[str, Any]) -> dict[str, Any]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            **{name.replace("_", "."): value for name, value in given.items()},
        }
