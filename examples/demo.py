"""Orders through a broker and into Spark: the whole way, and every total checked against what was sent.

The broker is `barnabas serve` in a process of its own. Orders, as JSON, are streamed to it by Barnabas's own
producer; a PySpark job then reads the topic by `format("barnabas")` and adds them up by product and by hour.

    python examples/demo.py                     a directory of its own, removed afterwards
    python examples/demo.py --orders 2000000    more of it
    python examples/demo.py --dir data          a new directory, left for you to look at
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from serving import free_port, start, stop

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.core.clock import SystemClock
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import SystemRandom
from barnabas.core.workers import InlineWorkers
from barnabas.records.compression import Codec
from barnabas.spark.java import NoJava, find_java

try:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as f

    from barnabas.spark.session import local_session
except ImportError:
    raise SystemExit("the demo needs PySpark: run `make demo`, or `pip install 'barnabas[spark]'`") from None

TOPIC = "orders"
PARTITIONS = 4
CHUNK = 10_000
DAY_MS = 24 * 3600 * 1000
CENTS = {"ink": 450, "lamp": 3900, "ledger": 1250, "letter": 120, "map": 800, "seal": 2300, "wax": 310}
ORDER = "product string, quantity int, cents long"

console = Console()


class Order(NamedTuple):
    """What one customer bought, and when."""

    customer: int
    product: str
    quantity: int
    time_ms: int

    @property
    def cents(self) -> int:
        return self.quantity * CENTS[self.product]

    def to_json(self) -> bytes:
        return json.dumps({"product": self.product, "quantity": self.quantity, "cents": self.cents}).encode()


class Total(NamedTuple):
    """A line of a table."""

    orders: int
    cents: int


class Step(NamedTuple):
    """What was done, and how long it took."""

    what: str
    orders: int
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description="Orders through a broker and into Spark.")
    parser.add_argument("--dir", help="keep the data in this new directory")
    parser.add_argument("--orders", type=int, default=300_000, help="how many to send")
    options = parser.parse_args()
    try:
        find_java()
    except NoJava as error:
        raise SystemExit(str(error)) from None
    if options.dir is not None:
        return run(Path(options.dir), options.orders)
    with tempfile.TemporaryDirectory(prefix="barnabas-demo-") as directory:
        return run(Path(directory) / "data", options.orders)


def run(directory: Path, count: int) -> int:
    port = free_port()
    bootstrap = f"127.0.0.1:{port}"
    broker, start_seconds = start(directory, port)
    console.print(f"[bold]broker[/]  answers at {bootstrap} after {start_seconds * 1000:.0f} ms")
    try:
        sent, produced = stream(bootstrap, count)
        began = time.perf_counter()
        with console.status("[bold]spark[/]   starting"):
            spark = local_session("demo", log_file=directory.with_name(f"{directory.name}-spark.log"))
        console.print(f"[bold]spark[/]   {describe(spark)}, up after {time.perf_counter() - began:.1f} s")
        with console.status("[bold]job[/]     adding up the orders"):
            found, cold = add_up(spark, bootstrap, "read and added up by Spark")
            again, warm = add_up(spark, bootstrap, "once more, now that it is warm")
        console.print(f"[bold]job[/]     {cold.orders:,} orders read and added up in {cold.seconds:.1f} s")
        spark.stop()
    finally:
        stop(broker)
    show(found, [produced, cold, warm])
    return verdict(sent, found, again)


# ---- in: a producer ----------------------------------------------------------------------------------------


def orders_of_a_day(count: int) -> Iterator[Order]:
    """Orders of the last 24 hours, the same in every run but for the time."""
    dice = random.Random(1926)
    first_ms = time.time_ns() // 1_000_000 - DAY_MS
    products = list(CENTS)
    for number in range(count):
        product = products[min(dice.randrange(9), dice.randrange(7), 6)]
        time_ms = first_ms + number * DAY_MS // count
        yield Order(dice.randrange(10_000), product, 1 + dice.randrange(5), time_ms)


def stream(bootstrap: str, count: int) -> tuple[Counter[tuple[str, int]], Step]:
    """Send the orders; what was sent, by product and hour, and how fast it was acknowledged."""
    sent: Counter[tuple[str, int]] = Counter()
    began = time.perf_counter()
    asyncio.run(_stream(bootstrap, count, sent))
    return sent, Step("sent, and acknowledged", count, time.perf_counter() - began)


async def _stream(bootstrap: str, count: int, sent: Counter[tuple[str, int]]) -> None:
    seams = OsNetwork(InlineWorkers()), SystemClock(), SystemRandom()
    async with Admin(*seams, bootstrap) as admin:
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
    config = ProducerConfig(compression=Codec.LZ4, batch_bytes=64 * 1024)
    columns = TextColumn("[bold]orders[/] "), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    async with Producer(*seams, bootstrap, config) as producer:
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("orders", total=count)
            waiting = []
            for order in orders_of_a_day(count):
                key = b"%d" % order.customer
                waiting.append(await producer.send(TOPIC, order.to_json(), key, timestamp_ms=order.time_ms))
                sent[order.product, order.time_ms // 3_600_000] += order.cents
                if len(waiting) == CHUNK:
                    progress.advance(task, await acknowledged(waiting))
            progress.advance(task, await acknowledged(waiting))


async def acknowledged(waiting: list[asyncio.Future[object]]) -> int:
    """Wait for the broker's word on each; an order that was refused ends the demo."""
    count = len(await asyncio.gather(*waiting))
    waiting.clear()
    return count


# ---- out: a Spark job --------------------------------------------------------------------------------------


def describe(spark: SparkSession) -> str:
    java = find_java()
    return f"Spark {spark.version} on Java {java.version}"


def read_orders(spark: SparkSession, bootstrap: str) -> DataFrame:
    """The topic as a table of orders."""
    records = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("columns", "value, timestamp")
        .load()
    )
    order = f.from_json(f.col("value").cast("string"), ORDER)
    return records.select(order.alias("order"), f.date_trunc("hour", "timestamp").alias("hour")).select(
        "order.*", "hour"
    )


def totals(orders: DataFrame) -> DataFrame:
    """Number and value of the orders by product and hour."""
    return orders.groupBy("product", "hour").agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))


def add_up(spark: SparkSession, bootstrap: str, what: str) -> tuple[dict[tuple[str, int], Total], Step]:
    began = time.perf_counter()
    rows = totals(read_orders(spark, bootstrap)).withColumn("hour", f.unix_timestamp("hour")).collect()
    found = {(row.product, row.hour // 3600): Total(row.orders, row.cents) for row in rows}
    count = sum(total.orders for total in found.values())
    return found, Step(what, count, time.perf_counter() - began)


# ---- what came of it ---------------------------------------------------------------------------------------


def show(found: dict[tuple[str, int], Total], steps: list[Step]) -> None:
    by_product = Table("product", "orders", "value", "best hour (UTC)", title="Orders of the last 24 hours")
    for product in sorted(CENTS):
        hours = {hour: total for (name, hour), total in found.items() if name == product}
        count = sum(total.orders for total in hours.values())
        cents = sum(total.cents for total in hours.values())
        best = max(hours, key=lambda hour: hours[hour].cents, default=0)
        by_product.add_row(product, f"{count:,}", f"{cents / 100:,.2f}", f"{best % 24:02d}:00")
    rates = Table("what", "orders", "seconds", "orders/s", title="What it took")
    for step in steps:
        rate = step.orders / step.seconds
        rates.add_row(step.what, f"{step.orders:,}", f"{step.seconds:.1f}", f"{rate:,.0f}")
    for table in (by_product, rates):
        for column in table.columns[1:]:
            column.justify = "right"
        console.print(table)


def verdict(sent: Counter[tuple[str, int]], *reads: dict[tuple[str, int], Total]) -> int:
    """Whether every total is the cent-exact one of what was sent."""
    if any(dict(sent) != {place: total.cents for place, total in found.items()} for found in reads):
        console.print("[bold red]the totals differ from what was sent[/]")
        return 1
    console.print(
        f"[bold green]checked[/] all {len(sent)} totals by product and hour are those of what was sent"
    )
    console.print("[bold]next[/]    docs/spark.md: the format; and kill -9 in mid-work, and carry on:")
    console.print(f"        {sys.executable} examples/broker.py", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
