"""The query that `kills` kills: numbers from one topic to another, or to a Delta table, exactly once.

    python -m tests.spark.kills_query MASTER BOOTSTRAP DIRECTORY SINK TASKS

A record keeps its key and its number, and gets its place in the input. All records of a key are of one input
partition, and go through one task into one output partition, so their order is kept. A run of the query that
fails is followed by the next one in the same process, as long as the JVM lives; what it failed of goes to
`failures.jsonl` in the directory.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from barnabas.spark import delta_writer
from barnabas.spark.session import local_session

INPUT, OUTPUT = "numbers", "copies"
GROUP_ID_PREFIX = "kills"
SINKS = ("topic", "delta")
ROWS_A_BATCH = 400
# a batch is known by its offsets as long as its file is there
SETTINGS = {
    "spark.sql.streaming.minBatchesToRetain": "1000000",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.driver.memory": "600m",
    "spark.executor.memory": "512m",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "8",
    "spark.stage.maxConsecutiveAttempts": "8",
    "spark.sql.adaptive.enabled": "false",
}


def last_run(pid: int) -> str:
    """The file that tells a driver not to start the query again."""
    return f"last-run-of-{pid}"


def copies(spark: SparkSession, bootstrap: str, tasks: int) -> DataFrame:
    """Every number with its place in the input, over so many tasks."""
    reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    options = {
        "subscribe": INPUT,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(ROWS_A_BATCH),
        "groupIdPrefix": GROUP_ID_PREFIX,
    }
    return (
        reader.options(**options)
        .load()
        .repartition(tasks, "key")
        .selectExpr("key", "concat(string(value), ' ', partition, ' ', offset) AS value")
    )


def written(frame: DataFrame, bootstrap: str, directory: Path, sink: str) -> DataStreamWriter:
    """As the sink wants it."""
    if sink == "delta":
        return frame.writeStream.foreachBatch(delta_writer(directory / "table"))
    writer = frame.writeStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    return writer.option("topic", OUTPUT)


def run(writer: DataStreamWriter, directory: Path) -> None:
    """One run, until it fails; the next one goes on from there."""
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        with (directory / "failures.jsonl").open("a") as failures:
            failures.write(json.dumps({"run": str(query.runId), "error": str(error)}) + "\n")
        raise


def main(master: str, bootstrap: str, home: str, sink: str, tasks: str) -> None:
    directory = Path(home)
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {
        **SETTINGS,
        "spark.master": master,
        "spark.local.dir": str(directory / "tmp"),
        "spark.driver.extraJavaOptions": f"{quick} -Djava.io.tmpdir={directory / 'tmp'}",
        "spark.executor.extraJavaOptions": quick,
    }
    spark = local_session("kills", log_file=directory / "spark.log", settings=settings)
    while not (directory / last_run(os.getpid())).exists():
        with suppress(StreamingQueryException):
            run(written(copies(spark, bootstrap, int(tasks)), bootstrap, directory, sink), directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
