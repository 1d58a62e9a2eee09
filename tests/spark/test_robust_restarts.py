"""The broker is killed (SIGKILL) and started again while Spark reads and writes: it goes on where it was."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from tests.support.apache_kafka import free_ports
from tests.support.raw_client import wait_until
from tests.support.serve_process import ServeProcess
from tests.support.spark_gate import TIMEOUT_S, Gate
from tests.support.spark_streams import run as run_stream
from tests.support.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 60_000  # several of Arrow's batches, and more than what waits in the sockets between processes
PAD = "REPEAT('x', 1000)"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    (port,) = free_ports(1)
    with ServeProcess(tmp_path_factory.mktemp("serve") / "data", listen=f"127.0.0.1:{port}") as running:
        yield running


@pytest.fixture
def topics(spark: SparkSession, process: ServeProcess) -> Topics:
    return Topics(spark, f"127.0.0.1:{process.port}")


def restart(process: ServeProcess) -> None:
    process.kill()
    process.start()


def rows(spark: SparkSession) -> DataFrame:
    """Numbers as keys, in two tasks."""
    return spark.range(0, ROWS, 1, 2).selectExpr("STRING(id) AS key", f"{PAD} AS value")


def in_mid_job(gate: Gate, job: Callable[[], object], happens: Callable[[], None]) -> None:
    """Let something happen while the job stands at the gate, then let it go on to its end."""
    has_ended = threading.Event()

    def wait() -> None:
        try:
            gate.wait(is_hopeless=has_ended.is_set)
            happens()
        finally:
            gate.open()

    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(wait)
        try:
            job()  # in this thread: in another one Spark does not find sources of Python's for a write
        finally:
            has_ended.set()
        waiting.result(TIMEOUT_S)


def test_in_mid_read(spark: SparkSession, topics: Topics, process: ServeProcess, tmp_path: Path) -> None:
    name, gate = topics.create("read-through"), Gate(tmp_path)
    topics.write(rows(spark), name, deliveryGuarantee="at-least-once")
    found: list[tuple[int, ...]] = []

    def read() -> None:
        frame = gate.in_front_of(topics.read(name, columns="key, value, offset"))
        counts = ("COUNT(*)", "COUNT(DISTINCT key)", "MIN(offset)", "MAX(offset)", "SUM(LENGTH(value))")
        found.append(tuple(frame.selectExpr(*counts).first() or ()))

    in_mid_job(gate, read, lambda: restart(process))
    assert found == [(ROWS, ROWS, 0, ROWS - 1, 1000 * ROWS)]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_in_mid_write(
    spark: SparkSession, topics: Topics, process: ServeProcess, tmp_path: Path, guarantee: str
) -> None:
    name, gate = topics.create(f"written-through-{guarantee}"), Gate(tmp_path)

    def happens() -> None:
        wait_until(lambda: topics.end(name) > 0, "rows are at the broker")
        restart(process)

    frame = gate.in_front_of(rows(spark))
    in_mid_job(gate, lambda: topics.write(frame, name, deliveryGuarantee=guarantee), happens)
    keys = [int(each.key or b"") for each in topics.records(name)]
    assert len(keys) == ROWS
    assert sorted(keys) == list(range(ROWS))


def test_in_mid_stream(topics: Topics, process: ServeProcess, tmp_path: Path) -> None:
    """Between what the driver asks, with the broker away for a moment: offsets are asked for again."""
    name = topics.create("streamed-through")
    topics.send(name, [b"%d" % n for n in range(90)])
    seen: list[list[int]] = []

    def take(frame: DataFrame, number: int) -> None:
        seen.append(sorted(int(row.value) for row in frame.collect()))
        process.kill()
        threading.Timer(0.5, process.start).start()

    frame = topics.stream(name, maxOffsetsPerTrigger="30", mirrorOffsets="false")
    run_stream(frame.writeStream.foreachBatch(take), tmp_path)
    assert seen == [list(range(start, start + 30)) for start in (0, 30, 60)]
    process.wait_until_answered(process.port)
