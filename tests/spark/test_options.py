"""What is asked for is understood as Spark's own connector does, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.consumer import Reset
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.spark.options import Bound, OptionError, ReadOptions, Topics, parse_options

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def parse(**options: str) -> ReadOptions:
    """Options by name, with two underscores for a dot, and what is always needed unless it is given."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    if not {"assign", "subscribe", "subscribePattern"} & given.keys():
        given["subscribe"] = "a"
    return parse_options({"kafka.bootstrap.servers": "localhost:9092", **given})


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
    assert (consumer.client.client_id, consumer.rack_id, consumer.reset) == ("me", "r", Reset.EARLIEST)


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
        ({"kafka__group__id": "g"}, r"kafka\.group\.id means nothing here yet; there are: "),
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
