"""Orders and payments, made into what a shop needs: two streams of Spark's, each exactly once.

    orders   --+--> orders paid within half an hour  --> topic paid-orders
    payments --+--> what cannot be used, and why     --> topics orders.dlq, payments.dlq
    orders   -----> revenue by product and hour      --> Delta table `revenue`

It may die at any moment: started again on the same directory it goes on where it was. `make demo` plays that;
by hand, on any Kafka that has the topics:

    python examples/pipeline.py --bootstrap localhost:9092 --dir shop
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from barnabas.spark import (
    decode_json,
    delta_writer,
    encode_json,
    good,
    join_within,
    reject,
    tumbling,
    with_dead_letters,
)
from barnabas.spark.session import local_session

ORDER = """order_id bigint NOT NULL, customer int NOT NULL, product string NOT NULL,
           quantity int NOT NULL, cents bigint NOT NULL, at timestamp NOT NULL"""
PAYMENT = "order_id bigint NOT NULL, method string NOT NULL, cents bigint NOT NULL, at timestamp NOT NULL"
SCHEMAS = {"orders": ORDER, "payments": PAYMENT}
TOO_LATE = "timestamp > data.at + INTERVAL '1 hour'"  # when it was sent, and when it happened
WATERMARK = "2 hours"  # beyond what is too late, for partitions that are not read at the same pace
SETTINGS = {"spark.sql.shuffle.partitions": "2"}  # enough for one machine; a stream keeps what it began with


def usable(records: DataFrame, schema: str) -> DataFrame:
    """Every record with its `data`, or with the `error` that keeps it from being used."""
    return records.transform(decode_json, schema).transform(reject, TOO_LATE, "late by more than an hour")


def paid_orders(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """The orders whose payment came within half an hour."""
    placed = orders.transform(good).select("data.*")
    paid = payments.transform(good).select("data.order_id", "data.method", f.col("data.at").alias("paid_at"))
    times = {"left_time": "at", "right_time": "paid_at", "watermark": WATERMARK}
    return (
        placed.transform(join_within, paid, "order_id", "30 minutes", before="0 minutes", **times)
        .withColumn("key", f.col("order_id").cast("string"))
        .withColumn("data", f.struct("order_id", "customer", "product", "cents", "method", "paid_at"))
        .select("key", "data")
        .transform(encode_json)
    )


def revenue(orders: DataFrame) -> DataFrame:
    """Number and value of the orders by product and hour, once the hour is over."""
    totals = f.count("*").alias("orders"), f.sum("cents").alias("cents")
    placed = orders.transform(good).select("data.*")
    return placed.transform(tumbling, "at", "1 hour", *totals, by="product", watermark=WATERMARK)


def start(spark: SparkSession, bootstrap: str, directory: Path) -> list[StreamingQuery]:
    """Both streams, running."""
    cluster = {"kafka.bootstrap.servers": bootstrap}

    def read(topic: str, group: str) -> DataFrame:
        source = {"subscribe": topic, "startingOffsets": "earliest", "kafka.group.id": group}
        stream = spark.readStream.format("barnabas").options(**cluster, **source).load()
        return usable(stream, SCHEMAS[topic])

    def write(rows: DataFrame, name: str) -> DataStreamWriter:
        stream = rows.writeStream.queryName(name).trigger(processingTime="1 second")
        return stream.option("checkpointLocation", str(directory / "checkpoints" / name))

    orders, payments = read("orders", "shop-paid-orders"), read("payments", "shop-paid-orders")
    records = paid_orders(orders, payments).transform(with_dead_letters, orders, topic="paid-orders")
    records = records.transform(with_dead_letters, payments)
    books = revenue(read("orders", "shop-revenue"))
    return [
        write(records, "paid-orders").format("barnabas").options(**cluster).start(),
        write(books, "revenue").foreachBatch(delta_writer(directory / "revenue")).start(),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Orders and payments, made into what a shop needs.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--dir", type=Path, default=Path("shop"), help="checkpoints, the Delta table, logs")
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    spark = local_session("shop", log_file=options.dir / "spark.log", settings=SETTINGS)
    queries = start(spark, options.bootstrap, options.dir)
    while all(query.isActive for query in queries) and not stopping.wait(0.5):
        pass
    failures = [str(failure) for query in queries if (failure := query.exception())]
    for query in queries:
        query.stop()
    spark.stop()
    for words in failures:
        print(words, words.partition("\n")[0], sep="\n", file=sys.stderr)  # the short of it comes last
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
