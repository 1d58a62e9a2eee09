"""What the client reads is given to Spark in Spark's shape."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from barnabas.client.arrow import record_batches
from barnabas.client.fetched import Fetched
from barnabas.client.metadata import TopicPartition
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.spark.options import COLUMNS
from barnabas.spark.rows import to_rows

RECORDS = [
    Record(0, 1_700_000_000_123, b"k", b"v", (("a", b"1"), ("b", None))),
    Record(1, 1_700_000_000_124, None, None, ()),
    Record(2, 1_700_000_000_125, b"", b"", (("c", b""),)),
]


def rows(records: list[Record], columns: tuple[str, ...] = COLUMNS) -> pa.RecordBatch:
    fetched = Fetched(TopicPartition("t", 1), build_batch(records), 0).rest()
    (batch,) = record_batches(fetched)
    made = to_rows(batch, columns)
    made.validate(full=True)
    return made


def test_headers_are_null_where_there_are_none() -> None:
    headers = rows(RECORDS).column("headers")
    assert headers.null_count == 1
    assert headers.to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        None,
        [{"key": "c", "value": b""}],
    ]
    assert rows(RECORDS[1:2]).column("headers").to_pylist() == [None]


def test_times_are_in_microseconds() -> None:
    times = rows(RECORDS, ("timestamp",)).column(0)
    assert times.type == pa.timestamp("us", tz="UTC")
    assert times.cast("int64").to_pylist() == [record.timestamp * 1000 for record in RECORDS]


@pytest.mark.parametrize("columns", [("value",), ("offset", "key"), COLUMNS])
def test_only_what_is_wanted(columns: tuple[str, ...]) -> None:
    assert rows(RECORDS, columns).schema.names == list(columns)


@pytest.mark.spark
def test_the_schema_is_the_one_that_spark_compares_with() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from barnabas.spark.source import BarnabasDataSource

    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "includeHeaders": "true"}
    assert rows(RECORDS).schema.equals(to_arrow_schema(BarnabasDataSource(options).schema(), timezone="UTC"))
