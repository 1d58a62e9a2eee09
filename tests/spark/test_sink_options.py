"""The options and columns of a write, without Spark's JVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.client.producer_config import ALL
from barnabas.records.compression import Codec
from barnabas.spark.checks import SettingError, check_task_settings
from barnabas.spark.option_values import OptionError
from barnabas.spark.sink_options import MARKER_TOPIC, WriteOptions, parse_write_options


def parse(options: Mapping[str, str], *, is_stream: bool = True) -> WriteOptions:
    """Options with underscores for dots."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    return parse_write_options({"kafka.bootstrap.servers": "here:9092", **given}, is_stream=is_stream)


def test_what_holds_if_nothing_is_said() -> None:
    options = parse({"checkpointLocation": "/tmp/x", "queryName": "q", "includeHeaders": "true"})
    assert options[:6] == ("here:9092", None, True, MARKER_TOPIC, None, None)
    config = options.producer
    assert (config.acks, config.idempotence, config.compression) == (ALL, True, Codec.NONE)
    assert config.transaction_timeout_ms == 900_000
    assert config.client.client_id == "barnabas-spark"


def test_settings_of_the_producer() -> None:
    options = parse(
        {
            "Topic": " orders ",
            "deliveryGuarantee": "At-Least-Once",
            "kafka_acks": "1",
            "kafka_batch_size": "65536",
            "kafka_buffer_memory": "1000000",
            "kafka_client_id": "me",
            "kafka_compression_type": "ZSTD",
            "kafka_delivery_timeout_ms": "1000",
            "kafka_linger_ms": "7",
            "kafka_max_in_flight_requests_per_connection": "9",
            "kafka_max_request_size": "2000000",
            "kafka_request_timeout_ms": "999",
        }
    )
    config = options.producer
    assert (options.topic, options.is_exactly_once) == ("orders", False)
    # idempotence was not asked for, and gives way to what was
    assert (config.acks, config.idempotence, config.compression) == (1, False, Codec.ZSTD)
    assert (config.batch_bytes, config.buffer_bytes, config.max_request_bytes) == (
        65536,
        1_000_000,
        2_000_000,
    )
    assert (config.linger_ms, config.delivery_timeout_ms, config.max_in_flight) == (7, 1000, 9)
    assert (config.client.client_id, config.client.request_timeout_ms) == ("me", 999)


def test_a_named_batch_write() -> None:
    options = parse({"txnAppId": "nightly", "txnVersion": "20240103"}, is_stream=False)
    assert (options.app, options.version) == ("nightly", 20240103)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka_bootstrap_servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"topics": "x"}, "unknown option topics of a write; there are: kafka.bootstrap.servers, topic, del"),
        ({"topic": " "}, "topic=' ': must be the name of one topic"),
        ({"path": "x"}, "path cannot be set: topics are named by the option topic"),
        ({"deliveryGuarantee": "once"}, "deliveryGuarantee='once': must be one of exactly-once, at-least-o"),
        ({"kafka_acks": "2"}, "kafka.acks='2': must be one of all, -1, 1, 0"),
        ({"kafka_acks": "1"}, "deliveryGuarantee=exactly-once needs kafka.acks=all"),
        ({"kafka_enable_idempotence": "false"}, "deliveryGuarantee=exactly-once needs kafka.acks=all"),
        ({"kafka_linger_ms": "soon"}, "kafka.linger.ms='soon': must be a whole number"),
        ({"kafka_max_in_flight_requests_per_connection": "6"}, "per.connection: at most 5 with idempotence"),
        ({"kafka_compression_type": "lzma"}, "kafka.compression.type='lzma': must be one of none, gzip"),
        ({"kafka_transactional_id": "x"}, "kafka.transactional.id cannot be set: the sink makes its own"),
        ({"kafka_retries": "3"}, "kafka.retries means nothing to a write; there are: kafka.acks"),
        ({"txnAppId": "x"}, "txnAppId and txnVersion go together"),
        ({"txnAppId": "x", "txnVersion": "1"}, "txnAppId and txnVersion are for batch writes"),
        ({"kafka_transaction_timeout_ms": "0"}, "transaction_timeout_ms=0: must be at least 1"),
    ],
)
def test_options_that_will_not_do(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as error:
        parse(options)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"txnAppId": " ", "txnVersion": "1"}, "txnAppId is empty"),
        ({"txnAppId": "x", "txnVersion": "-1"}, "txnVersion='-1': must be a whole number"),
        (
            {"txnAppId": "x", "txnVersion": "1", "deliveryGuarantee": "at-least-once"},
            "txnAppId and txnVersion need deliveryGuarantee=exactly-once",
        ),
    ],
)
def test_options_of_a_batch_that_will_not_do(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as error:
        parse(options, is_stream=False)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("ddl", "topic", "expected"),
    [
        ("value string", "t", ["value"]),
        ("offset bigint, topic string, value binary", None, ["value", "topic"]),
        ("topic string, value binary", "stronger", ["value"]),
        (
            "key string, value string, headers array<struct<key: string, value: binary>>, topic string, "
            "partition int, timestamp timestamp, timestampType int",
            None,
            ["value", "key", "headers", "topic", "partition", "timestamp"],
        ),
    ],
)
def test_columns_that_are_written(ddl: str, topic: str | None, expected: list[str]) -> None:
    columns = written(ddl, topic)
    assert [each.name for each in columns] == expected
    names = [field.split()[0] for field in ddl.split(", ") if ":" not in field or "array" in field]
    assert all(names[each.place] == each.name for each in columns)


@pytest.mark.parametrize(
    ("ddl", "topic", "said"),
    [
        ("id bigint", "t", "there is no column value: .* the columns are id"),
        ("value bigint", "t", "column value is bigint and must be string or binary: cast it"),
        ("value string, key int", "t", "column key is int and must be string or binary"),
        ("value string", None, "no topic: set the option topic, or add a column topic"),
        ("value string, topic int", None, "column topic is int and must be string"),
        ("value string, partition bigint", "t", "column partition is bigint and must be int"),
        ("value string, timestamp bigint", "t", "column timestamp is bigint and must be timestamp or double"),
        ("value string, headers map<string, string>", "t", "column headers is map<.* must be array<struct<k"),
        ("value string, value binary", "t", "there are 2 columns value: select one of them"),
    ],
)
def test_columns_that_cannot_be_written(ddl: str, topic: str | None, said: str) -> None:
    from barnabas.spark.sink_schema import SchemaError

    with pytest.raises(SchemaError, match=said):
        written(ddl, topic)


def written(ddl: str, topic: str | None) -> Any:
    types = pytest.importorskip("pyspark.sql.types")
    from barnabas.spark.sink_schema import written_columns

    fields = [field.split(" ", 1) for field in _fields(ddl)]
    schema = types.StructType([types.StructField(name, _type(types, text)) for name, text in fields])
    return written_columns(schema, topic)


def _fields(ddl: str) -> list[str]:
    """Parts at commas that stand in no brackets: Spark's own parser needs a JVM."""
    parts, depth = [""], 0
    for letter in ddl:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _type(types: Any, text: str) -> Any:
    simple = {
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        "map<string, string>": types.MapType(types.StringType(), types.StringType()),
    }
    header = types.StructType(
        [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
    )
    return simple.get(text, types.ArrayType(header))


def test_batches_become_records() -> None:
    pa = pytest.importorskip("pyarrow")
    from barnabas.spark.sink_schema import Column, payload_bytes, to_records

    batch = pa.RecordBatch.from_pydict(
        {
            "offset": [1, 2, 3],
            "value": ["ä", None, "abc"],
            "key": [b"k", b"", None],
            "timestamp": [1.5, None, 2.0],
        }
    )
    records = to_records(batch, [Column("value", 1), Column("key", 2), Column("timestamp", 3)])
    assert records.schema.names == ["value", "key", "timestamp"]
    times = records.column("timestamp").cast(pa.int64()).to_pylist()
    assert times == [1_500_000, None, 2_000_000]
    assert payload_bytes(records) == 2 + 3 + 1
    # the same rows, however they are cut
    assert sum(payload_bytes(records.slice(row, 1)) for row in range(3)) == 6
    assert payload_bytes(records.slice(3)) == 0


def test_settings_of_spark() -> None:
    check_task_settings(lambda _: None)
    check_task_settings({"spark.speculation": "false", "__is_continuous_processing": "false"}.get)
    with pytest.raises(SettingError, match=r"spark.speculation=true: attempts of a task would fence each"):
        check_task_settings({"spark.speculation": "true"}.get)
    with pytest.raises(SettingError, match="exactly-once needs batches"):
        check_task_settings({"__is_continuous_processing": "true"}.get)
