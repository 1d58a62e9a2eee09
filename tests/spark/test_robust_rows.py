"""Records of every shape, from a topic through Spark to another: each arrives as it was sent.

Null and empty are two things, for keys, values and the values of headers; a header may stand twice.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

pytest.importorskip("pyspark")

from barnabas.testing import Broker
from tests.support.spark_streams import run as run_stream
from tests.support.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARTITIONS = 2
TIME_MS = 1_700_000_000_000
BYTES = (None, b"", b"\x00", "ä".encode(), b"\xff\xfe no text \x80")
HEADERS: tuple[list[dict[str, Any]] | None, ...] = (
    None,
    [],
    [{"key": "a", "value": b"1"}],
    [{"key": "a", "value": None}, {"key": "a", "value": b""}, {"key": "a", "value": b"\xff"}],
    [{"key": "", "value": b"x"}, {"key": "ключ", "value": None}],
)


@pytest.fixture
def topics(spark: SparkSession, shared_broker: Broker) -> Topics:
    return Topics(spark, shared_broker.bootstrap)


def every_shape() -> pa.Table:
    shapes = list(product(BYTES, BYTES, HEADERS))
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.table(
        {
            "key": pa.array([key for key, _, _ in shapes], pa.binary()),
            "value": pa.array([value for _, value, _ in shapes], pa.binary()),
            "headers": pa.array([headers for _, _, headers in shapes], pa.list_(header)),
            "partition": pa.array([n % PARTITIONS for n in range(len(shapes))], pa.int32()),
            "timestamp": pa.array([TIME_MS + n for n in range(len(shapes))], pa.timestamp("ms", "UTC")),
        }
    )


@pytest.mark.parametrize("how", ["batch", "exactly-once", "at-least-once"])
def test_every_shape_goes_through(topics: Topics, tmp_path: Path, how: str) -> None:
    source, target = (topics.create(f"shapes-{how}-{end}", PARTITIONS) for end in ("in", "out"))
    sent = every_shape()
    topics.send_table(source, sent)
    if how == "batch":
        topics.write(topics.read(source, includeHeaders="true"), target)
    else:
        frame = topics.stream(source, includeHeaders="true")
        run_stream(topics.sink(frame, target, deliveryGuarantee=how), tmp_path)
    expected = [
        (row["partition"], row["key"], row["value"], row["headers"] or [], TIME_MS + number)
        for number, row in enumerate(sent.select(["partition", "key", "value", "headers"]).to_pylist())
    ]
    found = [
        (
            each.partition,
            each.key,
            each.value,
            [{"key": key, "value": value} for key, value in each.headers],
            each.timestamp_ms,
        )
        for each in topics.records(target)
    ]
    assert found == sorted(expected, key=lambda row: (row[0], row[4]))


def test_null_and_empty_are_two_things_to_spark(topics: Topics) -> None:
    source = topics.create("null-or-empty")
    topics.send_table(source, every_shape().drop_columns(["partition"]))
    frame = topics.read(source, includeHeaders="true")
    each = len(HEADERS) * len(BYTES)
    assert frame.filter("key IS NULL").count() == frame.filter("key = X''").count() == each
    assert frame.filter("value IS NULL").count() == frame.filter("value = X''").count() == each
    assert frame.filter("headers IS NULL").count() == 2 * len(BYTES) ** 2  # none at all is null
    twice = frame.filter("SIZE(FILTER(headers, h -> h.key = 'a')) = 3 AND headers[0].value IS NULL")
    assert twice.filter("headers[1].value = X'' AND headers[2].value = X'FF'").count() == len(BYTES) ** 2
