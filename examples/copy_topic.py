"""A topic copied to another by Spark, exactly once: the smallest stream that may be killed at any moment.

    python examples/copy_topic.py --bootstrap localhost:9092 --from orders --to copies --dir copying

Kill it (`kill -9`), start it again: a reader of committed records finds every record once. It says `running`
when it has started; with --once it ends when all that is there is copied, otherwise it goes on until SIGTERM.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from barnabas.spark.session import local_session

BATCH_RECORDS = 1000


def copying(
    spark: SparkSession, bootstrap: str, source: str, target: str, tasks: int = 0
) -> DataStreamWriter:
    """The stream; rows go by `tasks` tasks, or as many as the topic has partitions."""
    records = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", BATCH_RECORDS)
        .load()
        .select("key", "value", "headers", "timestamp")
    )
    if tasks:
        records = records.repartition(tasks)
    writer = records.writeStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    return writer.option("topic", target)


def stop_at_sigterm(query: StreamingQuery) -> None:
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    while query.isActive and not asked.wait(0.1):
        pass
    query.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="Copy a topic to another with Spark, exactly once.")
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--from", dest="source", required=True)
    parser.add_argument("--to", dest="target", required=True)
    parser.add_argument("--dir", type=Path, required=True, help="for the checkpoint and Spark's log")
    parser.add_argument("--tasks", type=int, default=0, help="may be another number each time")
    parser.add_argument("--once", action="store_true", help="end when all that is there is copied")
    given = parser.parse_args()
    given.dir.mkdir(parents=True, exist_ok=True)
    spark = local_session("copy", log_file=given.dir / "spark.log")
    writer = copying(spark, given.bootstrap, given.source, given.target, given.tasks)
    writer = writer.option("checkpointLocation", str(given.dir / "checkpoint"))
    query = (writer.trigger(availableNow=True) if given.once else writer).start()
    print("running", flush=True)
    query.awaitTermination() if given.once else stop_at_sigterm(query)
    failure = query.exception()
    if failure is not None:
        print(failure, file=sys.stderr)
    spark.stop()
    return 0 if failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
