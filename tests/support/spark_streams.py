"""Streams of Spark in steps that a test chooses: one file of rows is one micro-batch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TIMEOUT_S = 280  # seconds on an idle machine, minutes on one that is busy with other tests
# Spark gives a Python worker ten seconds to start, whatever its settings say: too few on a busy machine
_WORKER_LATE = "Python worker failed to connect back"
_TRIES = 5


class Files:
    """A directory that a stream reads, a file a batch, in the order they were put."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._count = 0
        directory.mkdir()

    def put(self, rows: list[dict[str, Any]]) -> None:
        made = self._directory / f".{self._count}"
        made.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(made, (1_000_000_000 + self._count,) * 2)  # Spark takes the oldest first
        made.rename(self._directory / f"{self._count:06}.json")
        self._count += 1

    def stream(self, schema: str) -> DataFrame:
        reader = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self._directory))


def run(writer: DataStreamWriter, checkpoint: Path) -> StreamingQuery:
    """All that is there now, then the query ends; its error is raised.

    A query whose Python worker was late is started again from its checkpoint, as a supervisor would do.
    """
    from pyspark.errors import StreamingQueryException

    ready = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    for _ in range(_TRIES - 1):
        try:
            return _ended(ready.start())
        except StreamingQueryException as error:
            if _WORKER_LATE not in str(error):
                raise
    return _ended(ready.start())


def _ended(query: StreamingQuery) -> StreamingQuery:
    assert query.awaitTermination(TIMEOUT_S), "the query does not end"
    return query
