"""A node of the cluster is killed while Spark reads and writes, and does not come back before it has ended:
another node leads, or coordinates, and the job goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from barnabas.testing import Cluster
from tests.spark.test_robust_restarts import ROWS, in_mid_job, rows
from tests.support.raw_client import wait_until
from tests.support.spark_gate import Gate
from tests.support.spark_streams import run as run_stream
from tests.support.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def topics(spark: SparkSession, nodes: Cluster) -> Iterator[Topics]:
    """Afterwards, all nodes run again."""
    yield Topics(spark, nodes.bootstrap)
    killed = [each for each in nodes.nodes if not nodes.is_running(each)]
    if killed:
        nodes.restart(*killed)
    nodes.wait_until_in_sync()


def test_read_goes_on_with_the_next_leader(
    spark: SparkSession, topics: Topics, nodes: Cluster, tmp_path: Path
) -> None:
    name, gate = topics.create("read-through", replicas=3), Gate(tmp_path)
    topics.write(rows(spark), name, deliveryGuarantee="at-least-once")
    nodes.wait_until_in_sync(name)
    found: list[tuple[int, ...]] = []

    def read() -> None:
        frame = gate.in_front_of(topics.read(name, columns="key, value, offset"))
        counts = ("COUNT(*)", "COUNT(DISTINCT key)", "MIN(offset)", "MAX(offset)", "SUM(LENGTH(value))")
        found.append(tuple(frame.selectExpr(*counts).first() or ()))

    in_mid_job(gate, read, lambda: nodes.kill(nodes.leader_of(name)))
    assert found == [(ROWS, ROWS, 0, ROWS - 1, 1000 * ROWS)]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_write_goes_on_with_the_next_leader(
    spark: SparkSession, topics: Topics, nodes: Cluster, tmp_path: Path, guarantee: str
) -> None:
    name, gate = topics.create(f"written-through-{guarantee}", replicas=3), Gate(tmp_path)

    def happens() -> None:
        wait_until(lambda: topics.end(name) > 0, "rows are at the leader")
        nodes.kill(nodes.leader_of(name))

    frame = gate.in_front_of(rows(spark))
    in_mid_job(gate, lambda: topics.write(frame, name, deliveryGuarantee=guarantee), happens)
    keys = [int(each.key or b"") for each in topics.records(name)]
    assert len(keys) == ROWS
    assert sorted(keys) == list(range(ROWS))


def test_exactly_once_stream_goes_on_when_leader_and_coordinator_are_killed_in_turn(
    topics: Topics, nodes: Cluster, tmp_path: Path
) -> None:
    source, sink = topics.create("streamed-from", replicas=3), topics.create("streamed-to", replicas=3)
    topics.send(source, [b"%d" % n for n in range(120)])
    batches = 0
    find: list[Callable[[], int]] = [
        lambda: nodes.leader_of(source),
        lambda: nodes.leader_of(sink),
        nodes.controller,
    ]

    def copy(frame: DataFrame, number: int) -> None:
        nonlocal batches
        topics.write(frame.select("key", "value"), sink)
        nodes.wait_until_in_sync()
        killed = find[batches % len(find)]()
        batches += 1
        nodes.kill(killed)
        nodes.restart(killed)

    frame = topics.stream(source, maxOffsetsPerTrigger="30")
    run_stream(frame.writeStream.foreachBatch(copy), tmp_path / "each")
    assert batches == 4
    assert topics.values(sink) == sorted(b"%d" % n for n in range(120))

    topics.send(source, [b"%d" % n for n in range(120, 150)])
    nodes.kill(nodes.leader_of(sink))
    copied = topics.create("streamed-once", replicas=3)
    topics.pipe(source, copied, tmp_path / "once")
    assert topics.values(copied) == sorted(b"%d" % n for n in range(150))
