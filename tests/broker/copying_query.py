"""A query of Spark that copies a topic to another one, exactly once, partition by partition.

    python -m tests.broker.copying_query BOOTSTRAP INPUT OUTPUT DIRECTORY

Where a query fails it goes on from its checkpoint in the same process, and what it failed of is a line of
`failures.jsonl` in the directory, as in tests/spark/kills_query.py.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from pyspark.errors import StreamingQueryException

from barnabas.spark.session import local_session
from tests.spark.kills_query import SETTINGS, run

EVERY = "2 seconds"  # a batch, and its Python processes, have their price
CORES = 2


def main(bootstrap: str, source: str, output: str, home: str) -> None:
    directory = Path(home)
    spark = local_session("copying", cores=CORES, log_file=directory / "spark.log", settings=SETTINGS)
    cluster = {"kafka.bootstrap.servers": bootstrap}
    everything = {"subscribe": source, "startingOffsets": "earliest"}
    while True:
        frame = spark.readStream.format("barnabas").options(**cluster, **everything).load()
        copies = frame.select("value", "partition").writeStream.format("barnabas")
        with suppress(StreamingQueryException):
            run(copies.options(**cluster, topic=output).trigger(processingTime=EVERY), directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
