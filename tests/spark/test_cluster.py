"""The same pipeline on two cores of one process, and on a cluster of two workers, with the same results."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.producer import Producer
from barnabas.spark.driving import seams
from barnabas.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200), pytest.mark.slow]  # six JVMs

ORDERS = 2000
PARTITIONS = 3
BAD = b"no JSON at all"
ROOT = Path(__file__).parents[2]
DEADLINE_S = 480


def order(number: int) -> bytes:
    fields = {"id": number, "product": ("ink", "wax", "map")[number % 3], "cents": number}
    return json.dumps({**fields, "at": f"2023-11-14T22:{number * 50 // ORDERS:02}:00Z"}).encode()


async def create(broker: Broker, topic: str) -> None:
    names = (topic, f"{topic}-priced", f"{topic}.dlq")
    async with Admin(*seams(), broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names])
    async with Producer(*seams(), broker.bootstrap) as producer:
        for number in range(ORDERS):
            value = BAD if number % 100 == 7 else order(number)
            await producer.send(topic, value, b"%d" % number, number % PARTITIONS)


def records(spark: SparkSession, broker: Broker, topic: str) -> list[tuple[Any, ...]]:
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
    found = reader.option("kafka.isolation.level", "read_committed").load(subscribe=topic)
    return sorted((bytes(row.key), bytes(row.value)) for row in found.select("key", "value").collect())


def totals(directory: Path) -> list[tuple[Any, ...]]:
    table = DeltaTable(directory / "totals").to_pyarrow_table()
    return sorted(tuple(row.values()) for row in table.to_pylist())


def run_on_cluster(broker: Broker, topic: str, directory: Path) -> None:
    from tests.support.spark_cluster import SparkCluster

    log_file = directory / "driver.log"
    with SparkCluster(directory / "cluster", workers=2) as cluster, log_file.open("wb") as log:
        arguments = (cluster.master, broker.bootstrap, topic, str(directory))
        driver = subprocess.run(
            [sys.executable, "-m", "tests.support.spark_pipeline", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=log,
            stderr=log,
            timeout=DEADLINE_S,
            check=False,
        )
        assert driver.returncode == 0, log_file.read_text(errors="replace")[-6000:]
        # each worker had its part; once, on a busy machine, there were three executors: it is not known why
        assert {log.parts[-4] for log in cluster.executor_logs()} == {"worker-0", "worker-1"}


def test_one_process_and_a_cluster_give_the_same(
    spark: SparkSession, shared_broker: Broker, tmp_path: Path
) -> None:
    from tests.support.spark_pipeline import run_pipeline

    for topic in ("orders-local", "orders-cluster"):
        asyncio.run(create(shared_broker, topic))
        (tmp_path / topic).mkdir()
    run_pipeline(spark, shared_broker.bootstrap, "orders-local", tmp_path / "orders-local")
    run_on_cluster(shared_broker, "orders-cluster", tmp_path / "orders-cluster")

    here = records(spark, shared_broker, "orders-local-priced")
    assert here == records(spark, shared_broker, "orders-cluster-priced")
    assert len(here) == ORDERS * 99 // 100
    letters = records(spark, shared_broker, "orders-local.dlq")
    assert letters == records(spark, shared_broker, "orders-cluster.dlq")
    assert [value for _, value in letters] == [BAD] * (ORDERS // 100)
    final = totals(tmp_path / "orders-local")
    assert final == totals(tmp_path / "orders-cluster")
    assert len(final) == 4 * 3  # the last ten minutes are not over yet
