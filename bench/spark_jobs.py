"""Spark jobs that are timed: a process with one session, which does what it is told, line by line.

    {"job": "read", "format": "barnabas", "bootstrap": "...", "topic": "...", ...}   ->   {"seconds": ...}

Both connectors run in the same session, in turns: the one that comes with Spark (`kafka`, jars) and ours
(`barnabas`). It needs an environment in which both are installed; bench/spark.py starts it in one.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Consumer, Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from barnabas.spark.session import local_session
from tests.support.official_connector import SETTINGS as CONNECTOR

Job = dict[str, Any]
DEADLINE_S = 300
# as Spark runs them by itself: local_session would take the quicker compiler, and fewer of them
SETTINGS = {
    "spark.driver.extraJavaOptions": "",
    "spark.driver.memory": "3g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


def reader(spark: SparkSession, job: Job, *, stream: bool = False) -> DataFrame:
    """The topic, by the connector that is asked for."""
    source = spark.readStream if stream else spark.read
    options = {"kafka.bootstrap.servers": job["bootstrap"], "subscribe": job["topic"]}
    return source.format(job["format"]).options(**options, **job.get("options", {})).load()


def count(spark: SparkSession, job: Job) -> dict[str, float]:
    """How many rows there are: not timed, but read by the connector that is."""
    return {"rows": reader(spark, job).count()}


def read(spark: SparkSession, job: Job) -> dict[str, float]:
    """All of it, to nowhere."""
    return timed(lambda: reader(spark, job).write.format("noop").mode("overwrite").save())


def available_now(spark: SparkSession, job: Job) -> dict[str, float]:
    """All of it as a stream, to nowhere, to Parquet files or to another topic."""
    frame = reader(spark, {**job, "options": {"startingOffsets": "earliest", **job["options"]}}, stream=True)
    with scratch() as directory:
        sink = job.get("sink", "noop")
        if sink in ("kafka", "barnabas"):
            frame = frame.select("key", "value")
        writer = frame.writeStream.format(sink).option("checkpointLocation", str(directory / "checkpoint"))
        if sink == "parquet":
            writer = writer.option("path", str(directory / "files"))
        writer = writer.options(**job.get("sink_options", {})).trigger(availableNow=True)
        return timed(lambda: finished(writer.start()))


def write(spark: SparkSession, job: Job) -> dict[str, float]:
    """Rows that Spark makes, to a topic."""
    value = f.lpad(f.col("id").cast("string"), job["value_bytes"], "x").cast("binary")
    frame = spark.range(0, job["rows"], 1, job["tasks"]).select(value.alias("value"))
    options = {"kafka.bootstrap.servers": job["bootstrap"], "topic": job["topic"]}
    writer = frame.write.format(job["format"]).mode("append")
    return timed(lambda: writer.options(**options, **job.get("options", {})).save())


def latency(spark: SparkSession, job: Job) -> dict[str, float]:
    """From one topic to another, a record at a time: milliseconds from sent to seen by a reader."""
    producer = Producer({"bootstrap.servers": job["bootstrap"], "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": job["bootstrap"],
            "group.id": f"latency-{job['to']}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.subscribe([job["to"]])
    frame = reader(spark, {**job, "options": {"startingOffsets": "earliest"}}, stream=True)
    took = []
    with scratch() as directory:
        writer = frame.select("key", "value").writeStream.format(job["format"])
        options = {"kafka.bootstrap.servers": job["bootstrap"], "topic": job["to"]}
        query = writer.options(
            checkpointLocation=str(directory), **options, **job.get("sink_options", {})
        ).start()
        for number in range(job["records"]):
            began = time.monotonic()
            producer.produce(job["topic"], b"%d" % number)
            producer.flush()
            seen(consumer, b"%d" % number, query)
            took.append((time.monotonic() - began) * 1000)
        query.stop()
    consumer.close()
    return {"milliseconds": median(took[len(took) // 3 :])}


def seen(consumer: Consumer, value: bytes, query: StreamingQuery) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None and message.value() == value:
            return
        if not query.isActive or time.monotonic() > deadline:
            raise RuntimeError(f"{value!r} did not come: {query.exception()}")


def finished(query: StreamingQuery) -> None:
    if not query.awaitTermination(DEADLINE_S):
        query.stop()
        raise RuntimeError(f"the query did not end within {DEADLINE_S} s")


def timed(work: Callable[[], object]) -> dict[str, float]:
    began = time.monotonic()
    work()
    return {"seconds": time.monotonic() - began}


@contextmanager
def scratch() -> Iterator[Path]:
    """Checkpoints and files: in the working directory, as everything a benchmark writes."""
    directory = Path(tempfile.mkdtemp(prefix=".spark-", dir="."))
    try:
        yield directory.resolve()
    finally:
        shutil.rmtree(directory)


JOBS: dict[str, Callable[[SparkSession, Job], dict[str, float]]] = {
    "count": count,
    "read": read,
    "available-now": available_now,
    "write": write,
    "latency": latency,
}


def main(cores: int, log_file: str) -> None:
    settings = {**SETTINGS, **json.loads(os.environ[CONNECTOR])}
    spark = local_session("bench", cores=cores, log_file=Path(log_file), settings=settings)
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(JOBS[job["job"]](spark, job)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
