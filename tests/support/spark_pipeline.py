"""A pipeline as somebody would write it, to be run on whatever Spark there is.

    python -m tests.support.spark_pipeline MASTER BOOTSTRAP TOPIC DIRECTORY

Orders in JSON from a topic: good ones go to `<topic>-priced` and the others, with what is wrong, to
`<topic>.dlq`, exactly once; and what was ordered every ten minutes to a Delta table `totals` in DIRECTORY.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import DataStreamWriter

from barnabas.spark import decode_json, delta_writer, encode_json, good, routed, tumbling
from tests.support.spark_streams import run

ORDER = "id bigint NOT NULL, product string, cents bigint, at timestamp"
# what starts a JVM quickly: the quick compiler alone, and the collector without threads
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.cores.max": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def orders(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The stream of orders, decoded, good and bad."""
    reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1200"}
    return decode_json(reader.options(**options).load(), ORDER)


def priced(decoded: DataFrame, bootstrap: str, topic: str) -> DataStreamWriter:
    """Prices by id, and dead letters, in one write."""
    price = f.struct("data.product", (f.col("data.cents") / 100).alias("price"))
    is_good = f.col("error").isNull()
    records = decoded.withColumns(
        {
            "key": f.when(is_good, f.col("data.id").cast("string").cast("binary")).otherwise(f.col("key")),
            "data": f.when(is_good, price),
        }
    )
    out = routed(records.transform(encode_json), f"{topic}-priced")
    writer = out.writeStream.format("barnabas")
    return writer.option("kafka.bootstrap.servers", bootstrap)


def totals(decoded: DataFrame, path: Path) -> DataStreamWriter:
    """What was ordered by product, every ten minutes."""
    rows = good(decoded).select("data.*")
    aggregates = (f.count("*").alias("orders"), f.sum("cents").alias("cents"))
    windows = tumbling(rows, "at", "10 minutes", *aggregates, by="product", watermark="1 minute")
    return windows.writeStream.outputMode("append").foreachBatch(delta_writer(path))


def run_pipeline(spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> None:
    """Both outputs, as far as the topic goes now."""
    decoded = orders(spark, bootstrap, topic)
    run(priced(decoded, bootstrap, topic), directory / "priced-checkpoint")
    run(totals(decoded, directory / "totals"), directory / "totals-checkpoint")


def main(master: str, bootstrap: str, topic: str, directory: str) -> None:
    """The same on a cluster."""
    builder = SparkSession.builder.master(master).appName("pipeline")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        run_pipeline(spark, bootstrap, topic, Path(directory))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
