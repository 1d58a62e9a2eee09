"""A Spark session in a process of its own that has both formats, `kafka` and `barnabas`, and is told what to
do with them.

It is started with the environment of official_connector.py, reads a list of JSON objects a line and answers
with one: `do` names a function below, the rest are its arguments. What stands in one list is done at the same
time. What fails is an answer, too: {"error": ...}. Bytes are written as hexadecimal digits, times as
microseconds.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from barnabas.spark.session import local_session
from tests.support.official_connector import SETTINGS

STREAM_DEADLINE_S = 240
SETTINGS_OF_SMALL_JOBS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.python.filterPushdown.enabled": "true",  # for reads that ask for it
    # to compile a query takes longer than to interpret it on a few hundred rows
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
Row = list[Any]


def read(spark: SparkSession, by: str, options: dict[str, str], where: str = "true") -> dict[str, Any]:
    """A batch: its schema, into how many tasks it was cut, and its rows, as they come."""
    frame = spark.read.format(by).options(**options).load()
    rows = _rows(frame.where(where).selectExpr("*", "spark_partition_id() AS task"))
    return {
        "schema": frame.schema.json(),
        "tasks": len({row[-1] for row in rows}),
        "rows": [r[:-1] for r in rows],
    }


def stream(
    spark: SparkSession, by: str, options: dict[str, str], checkpoint: str, name: str | None = None
) -> dict[str, Any]:
    """All that there is now: the rows of each micro-batch, and what Spark wrote down of their offsets."""
    batches: list[tuple[int, list[Row]]] = []

    def take(frame: DataFrame, number: int) -> None:
        batches.append((number, _rows(frame)))

    frame = spark.readStream.format(by).options(**options).load()
    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    progress = _run(query, name)
    answer = {"schema": frame.schema.json(), "batches": batches, "offsets": _offset_log(Path(checkpoint))}
    return {**answer, "progress": progress}


def write(spark: SparkSession, by: str, options: dict[str, str], select: list[str], rows: int) -> None:
    """A table of `rows` rows with the column `id`, and from it what is selected, to a topic."""
    frame = spark.range(0, rows, 1, 2).selectExpr(*select)
    frame.write.format(by).options(**options).mode("append").save()


def copy(
    spark: SparkSession,
    source: str,
    source_options: dict[str, str],
    sink: str,
    sink_options: dict[str, str],
    select: list[str],
    checkpoint: str,
) -> dict[str, Any]:
    """A stream from topics to topics, as far as there is something now."""
    frame = spark.readStream.format(source).options(**source_options).load().selectExpr(*select)
    query = frame.writeStream.format(sink).options(**sink_options).option("checkpointLocation", checkpoint)
    return {"progress": _run(query), "offsets": _offset_log(Path(checkpoint))}


def version(spark: SparkSession) -> str:
    """Which Spark it is."""
    return spark.version


def _run(query: Any, name: str | None = None) -> list[dict[str, Any]]:
    if name is not None:
        query = query.queryName(name)
    running = query.trigger(availableNow=True).start()
    if not running.awaitTermination(STREAM_DEADLINE_S):
        running.stop()
        raise TimeoutError(f"the query did not end within {STREAM_DEADLINE_S} s: {running.status}")
    return [json.loads(each.json) for each in running.recentProgress]


def _rows(frame: DataFrame) -> list[Row]:
    columns = [
        "unix_micros(timestamp) AS timestamp" if name == "timestamp" else f"`{name}`"
        for name in frame.columns
    ]
    return [[_plain(value) for value in row] for row in frame.selectExpr(*columns).collect()]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _offset_log(checkpoint: Path) -> dict[str, str]:
    """The last line of each entry: what the source said. Names with a dot are Spark's, for its checksums."""
    entries = [each for each in (checkpoint / "offsets").iterdir() if each.name.isdigit()]
    return {each.name: each.read_text().splitlines()[-1] for each in entries}


ACTIONS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (read, stream, write, copy, version)
}


def main(log_file: Path) -> None:
    settings = {**json.loads(os.environ[SETTINGS]), **SETTINGS_OF_SMALL_JOBS}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    spark = local_session("compare", cores=2, log_file=log_file, settings=settings)
    # a write looks for Python sources in the thread's session, and this is how a thread comes by one
    with ThreadPoolExecutor(4, initializer=lambda: spark.createDataFrame([], "id int")) as threads:
        for line in sys.stdin:
            found = list(threads.map(partial(_answer, spark), json.loads(line)))
            answers.write(json.dumps(found) + "\n")
            answers.flush()
    spark.stop()


def _answer(spark: SparkSession, question: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": ACTIONS[question.pop("do")](spark, **question)}
    except Exception as error:  # noqa: BLE001  that it fails, and how, is the answer
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
