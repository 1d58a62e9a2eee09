"""What is asked for is understood as Spark's own connector does, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.consumer import Reset
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.spark.option_values import OptionError
from barnabas.spark.options import Bound, ReadOptions, StreamOptions, Topics, parse_options

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def parse(is_stream: bool = False, **options: str) -> ReadOptions:
    """Options by name, with two underscores for a dot, and what is always needed unless it is given."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    if not {"assign", "subscribe", "subscribePattern"} & given.keys():
        given["subscribe"] = "a"
    return parse_options({"kafka.bootstrap.servers": "localhost:9092", **given}, is_stream=is_stream)


def test_the_least_that_can_be_said() -> None:
    options = parse()
    assert options.bootstrap == "localhost:9092"
    assert options.topics == Topics(names=("a",))
    assert (options.start, options.end) == (Bound(EARLIEST), Bound(LATEST))
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert (options.min_partitions, options.max_records, options.poll_timeout_ms) == (None, None, 120_000)
    assert options.consumer.reset is Reset.NONE
    assert not options.consumer.read_committed
    assert not options.consumer.client.allow_auto_topic_creation


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"subscribe": "a, b,a"}, "topics", Topics(names=("a", "b"))),
        ({"subscribePattern": "a.*"}, "topics", Topics(pattern="a.*")),
        ({"assign": '{"a": [0, 1], "b": [0]}'}, "topics", Topics(partitions=(A0, A1, B0))),
        ({"startingOffsets": "EARLIEST"}, "start", Bound(EARLIEST)),
        ({"startingOffsets": '{"a": {"0": 7, "1": -2}}'}, "start", Bound({A0: 7, A1: EARLIEST})),
        ({"endingOffsets": '{"a": {"0": 7, "1": -1}}'}, "end", Bound({A0: 7, A1: LATEST})),
        ({"startingTimestamp": "5", "startingOffsets": "latest"}, "start", Bound(5, is_time=True)),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 7}}'}, "start", Bound({A0: 7}, is_time=True)),
        ({"endingTimestamp": "9"}, "end", Bound(9, is_time=True)),
        ({"endingOffsetsByTimestamp": '{"b": {"0": 0}}'}, "end", Bound({B0: 0}, is_time=True)),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "start_at_end_without_match", True),
        ({"minPartitions": "8"}, "min_partitions", 8),
        ({"maxRecordsPerPartition": "1000"}, "max_records", 1000),
        ({"failOnDataLoss": "False"}, "fail_on_data_loss", False),
        ({"kafkaConsumer__pollTimeoutMs": "7"}, "poll_timeout_ms", 7),
        ({"columns": "value,OFFSET, value"}, "columns", ("value", "offset")),
        ({"columns": "headers", "includeHeaders": "true"}, "columns", ("headers",)),
        ({"fetchOffset__numRetries": "7"}, "offset_attempts", 7),
        ({"fetchOffset__retryIntervalMs": "0"}, "offset_retry_ms", 0),
        ({"pushFilters": "true"}, "push_filters", True),
    ],
)
def test_each_option(options: dict[str, str], field: str, value: Any) -> None:
    assert getattr(parse(**options), field) == value
    lower = {name.lower(): text for name, text in options.items()}
    if not {"assign", "subscribe", "subscribepattern"} & lower.keys():
        assert getattr(parse(**lower), field) == value  # names are case-insensitive


def test_settings_of_the_consumer() -> None:
    consumer = parse(
        kafka__isolation__level="read_committed",
        kafka__fetch__max__bytes="5",
        kafka__max__partition__fetch__bytes="6",
        kafka__fetch__min__bytes="7",
        kafka__fetch__max__wait__ms="8",
        kafka__request__timeout__ms="9",
        kafka__client__id="me",
        kafka__client__rack="r",
        kafka__security__protocol="PLAINTEXT",
        failOnDataLoss="false",
    ).consumer
    assert consumer.read_committed
    assert (consumer.fetch_max_bytes, consumer.partition_max_bytes, consumer.fetch_min_bytes) == (5, 6, 7)
    assert (consumer.fetch_max_wait_ms, consumer.client.request_timeout_ms) == (8, 9)
    assert (consumer.client.client_id, consumer.reset) == ("me", Reset.EARLIEST)
    assert not consumer.rack_id  # a leader that knows it could send a task to another broker, again and again


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka__bootstrap__servers": ""}, r"kafka\.bootstrap\.servers is missing"),
        ({"kafka__bootstrap__servers": "localhost:x"}, r"kafka\.bootstrap\.servers: .*no address"),
        ({"subscribe": "a", "assign": "{}"}, "exactly one of .* given: assign, subscribe"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribePattern": "("}, "subscribePattern='\\(' is no pattern"),
        ({"assign": "a"}, "assign='a': write JSON such as"),
        ({"assign": '{"a": [-1]}'}, "assign=.*: write JSON such as"),
        ({"startingOffset": "earliest"}, "unknown option startingOffset; there are: .*startingOffsets"),
        ({"path": "/tmp"}, "unknown option path"),
        ({"option__subscribe": "a", "owner": "me"}, "CREATE TABLE does not work.*CREATE TEMPORARY VIEW"),
        (
            {"kafka__ssl__key": "g"},
            r"kafka\.ssl\.key means nothing here yet; there are: .*kafka\.client\.id",
        ),
        ({"kafka__auto__offset__reset": "latest"}, "is not for a source: startingOffsets says where"),
        ({"kafka__security__protocol": "SASL_SSL"}, r"kafka\.security\.protocol='sasl_ssl': must be one of"),
        ({"kafka__isolation__level": "none"}, r"kafka\.isolation\.level='none': must be one of"),
        ({"startingOffsets": "latest"}, r"startingOffsets of a batch cannot be latest \(-1\)"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "startingOffsets of a batch cannot be latest"),
        ({"endingOffsets": "earliest"}, r"endingOffsets of a batch cannot be earliest \(-2\)"),
        ({"endingOffsets": "later"}, "endingOffsets='later': write JSON such as"),
        ({"startingOffsets": '{"a": {"0": "7"}}'}, "startingOffsets=.*: write JSON such as"),
        (
            {"startingOffsets": '{"a": {"0": -3}}'},
            "startingOffsets: numbers are from -2 to 9223372036854775807",
        ),
        ({"endingOffsets": '{"a": {"0": 1, "0": 2}}'}, "endingOffsets: 0 is named twice"),
        ({"endingOffsets": '{"a": {"0": 1}, "a": {"1": 2}}'}, "endingOffsets: a is named twice"),
        ({"endingOffsets": '{"a": {"0": 1, "00": 2}}'}, "endingOffsets=.*: write JSON such as"),
        ({"endingOffsets": '{"a": {"0": 9223372036854775808}}'}, "endingOffsets: numbers are from"),
        ({"endingTimestamp": "9223372036854775808"}, "endingTimestamp=.*: must be a whole number from 0 to"),
        ({"kafka__fetch__max__bytes": "2147483648"}, r"kafka\.fetch\.max\.bytes=.*: must be a whole number"),
        ({"startingTimestamp": "-5"}, "startingTimestamp='-5': must be a whole number"),
        ({"minPartitions": "0"}, "minPartitions='0': must be a whole number from 1 to"),
        ({"includeHeaders": "yes"}, "includeHeaders='yes': must be true or false"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "must be one of error, latest"),
        ({"columns": "headers"}, "columns: there is no 'headers', only key, value"),
    ],
)
def test_what_will_not_do_is_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse(**options)


def test_a_stream_begins_at_the_end_unless_told_otherwise() -> None:
    options = parse(is_stream=True)
    assert options.start == Bound(LATEST)
    assert options.stream == StreamOptions(None, None, 15 * 60_000, "spark-a")
    assert parse(is_stream=True, startingOffsets='{"a": {"0": -1}}').start == Bound({A0: LATEST})
    assert parse(is_stream=True, startingTimestamp="5").start == Bound(5, is_time=True)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "2"}, (10, 2, 900_000, "spark-a")),
        ({"maxTriggerDelay": "90s"}, (None, None, 90_000, "spark-a")),
        ({"maxTriggerDelay": "2 h"}, (None, None, 7_200_000, "spark-a")),
        ({"maxTriggerDelay": "50"}, (None, None, 50, "spark-a")),
        ({"mirrorOffsets": "false"}, (None, None, 900_000, None)),
        ({"kafka__group__id": "g"}, (None, None, 900_000, "g")),
        ({"groupIdPrefix": "mine"}, (None, None, 900_000, "mine-a")),
        ({"subscribe": "b,a"}, (None, None, 900_000, "spark-b-a")),
        ({"assign": '{"a": [0, 1]}'}, (None, None, 900_000, "spark-a")),
        ({"subscribePattern": "a.*"}, (None, None, 900_000, "spark-a.*")),
    ],
)
def test_options_of_a_stream(options: dict[str, str], expected: tuple[Any, ...]) -> None:
    assert parse(is_stream=True, **options).stream == expected
    assert parse(**options).stream == StreamOptions()  # a batch has no use for them


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets: a stream has no end"),
        ({"endingTimestamp": "1"}, "endingTimestamp: a stream has no end"),
        ({"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"}, "minOffsetsPerTrigger=2 is more than"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon': write a length of time such as"),
        ({"maxTriggerDelay": "3 weeks"}, "maxTriggerDelay='3 weeks': write a length of time such as"),
    ],
)
def test_what_will_not_do_for_a_stream(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse(is_stream=True, **options)
