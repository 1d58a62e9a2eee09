"""The options of a read, named as those of Spark's own Kafka connector. Pure; does not import Spark.

An unknown option is an error that names it: if it were ignored, other records could be read than requested.
The table of options is in the documentation (docs/spark).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.client.cluster import ClientConfig
from barnabas.client.consumer import ConsumerConfig, Reset
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.spark.consumer_settings import GROUP_ID, consumer_config
from barnabas.spark.option_values import (
    BOOTSTRAP,
    MAX_INT64,
    Getter,
    OptionError,
    bootstrap,
    json_object,
    number,
)

logger = logging.getLogger("barnabas.spark")

POLL_TIMEOUT_MS = 120_000
MAX_TRIGGER_DELAY_MS = 15 * 60_000
GROUP_ID_PREFIX = "spark"

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
HEADERS = "headers"

_CHOICES = ("assign", "subscribe", "subscribePattern")
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_OF_STREAMS = ("maxOffsetsPerTrigger", "maxTriggerDelay", "minOffsetsPerTrigger")
_OTHERS = (
    "columns",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "maxRecordsPerPartition",
    "minPartitions",
    "mirrorOffsets",
    "pushFilters",
    "startingOffsetsByTimestampStrategy",
)
_OF_A_TABLE = "option."  # the prefix of a table's options among its properties
_NAMES = {name.lower(): name for name in (*_CHOICES, *_STARTS, *_ENDS, *_OF_STREAMS, *_OTHERS, BOOTSTRAP)}


class Bound(NamedTuple):
    """The start or end of a read: offsets or timestamps, for each partition or one for all.

    Offsets may be EARLIEST or LATEST.
    """

    at: Mapping[TopicPartition, int] | int
    is_time: bool = False


class Topics(NamedTuple):
    """The topics to read: partitions, or all partitions of named or matching topics. Exactly one field is
    set."""

    partitions: tuple[TopicPartition, ...] = ()
    names: tuple[str, ...] = ()
    pattern: str = ""


class StreamOptions(NamedTuple):
    """Further options of a stream."""

    max_offsets: int | None = None  # of a micro-batch
    min_offsets: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    group_id: str | None = None  # offsets are mirrored to it, unless it is None


class ReadOptions(NamedTuple):
    """The parsed options of a read."""

    bootstrap: str
    topics: Topics
    start: Bound
    end: Bound
    consumer: ConsumerConfig
    columns: tuple[str, ...]
    min_partitions: int | None = None
    max_records: int | None = None  # of a Spark partition
    fail_on_data_loss: bool = True
    start_at_end_without_match: bool = False  # if no record reaches the start timestamp
    poll_timeout_ms: int = POLL_TIMEOUT_MS
    offset_attempts: int = 3
    offset_retry_ms: int = 1000
    push_filters: bool = False
    stream: StreamOptions = StreamOptions()

    @property
    def planning_client(self) -> ClientConfig:
        """The client for planning: no request takes longer than kafka.default.api.timeout.ms."""
        return self.consumer.client.bounded(self.consumer.default_timeout_ms)


def parse_options(given: Mapping[str, str], *, is_stream: bool = False) -> ReadOptions:
    """The options of `spark.read.format("barnabas")`, or of `readStream`; OptionError if they are invalid."""
    options = _known(given)
    kafka = {name: value for name, value in options.items() if name.startswith("kafka.")}
    get = Getter(options)
    fails = get.flag("failOnDataLoss", True)
    topics = _topics(get)
    return ReadOptions(
        bootstrap(kafka.pop(BOOTSTRAP, "")),
        topics,
        _bound(get, _STARTS, "latest" if is_stream else "earliest", never=None if is_stream else LATEST),
        _no_end(get) if is_stream else _bound(get, _ENDS, "latest", never=EARLIEST),
        consumer_config(kafka, Reset.NONE if fails else Reset.EARLIEST),
        _columns(get),
        get.number("minPartitions"),
        get.number("maxRecordsPerPartition"),
        fails,
        get.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        get.number("kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS,
        get.number("fetchOffset.numRetries") or 3,
        _or(get.number("fetchOffset.retryIntervalMs", least=0), 1000),
        get.flag("pushFilters", False),
        _stream(get, topics) if is_stream else _no_stream(get),
    )


def parse_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a read of either kind; OptionError for an unknown option."""
    return _columns(Getter(_known(given)))


def _known(given: Mapping[str, str]) -> dict[str, str]:
    """The options by their names in lower case, if all of them are known."""
    options = {name.lower(): value for name, value in given.items()}
    if any(name.startswith(_OF_A_TABLE) for name in options):
        raise OptionError(
            "CREATE TABLE does not work: Spark does not hand a table's options to a source in Python when "
            "it is read; use CREATE TEMPORARY VIEW name USING barnabas OPTIONS (...)"
        )
    unknown = sorted(
        name for name in given if name.lower() not in _NAMES and not name.lower().startswith("kafka.")
    )
    if unknown:
        raise OptionError(f"unknown option {', '.join(unknown)}; there are: {', '.join(_NAMES.values())}")
    return options


def _or(found: int | None, default: int) -> int:
    return default if found is None else found


def _stream(get: Getter, topics: Topics) -> StreamOptions:
    largest, least = get.number("maxOffsetsPerTrigger"), get.number("minOffsetsPerTrigger")
    if largest is not None and least is not None and least > largest:
        raise OptionError(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={largest}")
    return StreamOptions(
        largest,
        least,
        _or(get.duration_ms("maxTriggerDelay"), MAX_TRIGGER_DELAY_MS),
        _group_id(get, topics) if get.flag("mirrorOffsets", True) else None,
    )


def _no_stream(get: Getter) -> StreamOptions:
    for name in _OF_STREAMS:
        if get.text(name) is not None:
            logger.warning("%s is for streams: this read is a batch, which takes everything at once", name)
    return StreamOptions()


def _group_id(get: Getter, topics: Topics) -> str:
    """A group id that is the same for every run of a query; a source knows neither the query's name nor its
    checkpoint."""
    if (given := get.text(GROUP_ID)) is not None:
        return given
    names = topics.names or sorted({topic for topic, _ in topics.partitions}) or (topics.pattern,)
    return f"{get.text('groupIdPrefix') or GROUP_ID_PREFIX}-{'-'.join(names)}"


def _no_end(get: Getter) -> Bound:
    given = [name for name in _ENDS if get.text(name) is not None]
    if given:
        raise OptionError(f"{', '.join(given)}: a stream has no end; use spark.read for a batch")
    return Bound(LATEST)


def _topics(get: Getter) -> Topics:
    given = [name for name in _CHOICES if get.text(name) is not None]
    if len(given) != 1:
        raise OptionError(f"give exactly one of {', '.join(_CHOICES)}; given: {', '.join(given) or 'none'}")
    text = get.text(given[0]) or ""
    if given[0] == "assign":
        lists = json_object(given[0], text, '{"topic": [0, 1]}', _is_list_of_partitions)
        partitions = tuple(TopicPartition(topic, number) for topic in lists for number in lists[topic])
        topics = Topics(partitions=tuple(dict.fromkeys(partitions)))
    elif given[0] == "subscribe":
        topics = Topics(names=tuple(dict.fromkeys(filter(None, (each.strip() for each in text.split(","))))))
    else:
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern={text!r} is no pattern: {error}") from None
        topics = Topics(pattern=text)
    if not any(topics):
        raise OptionError(f"{given[0]} names no topic")
    return topics


def _bound(get: Getter, names: tuple[str, str, str], default: str, *, never: int | None) -> Bound:
    """The start or end by the first of the options that is given; `never` is not allowed there."""
    one_time, times, offsets = names
    if (text := get.text(one_time)) is not None:
        return Bound(number(one_time, text), is_time=True)
    if (text := get.text(times)) is not None:
        return Bound(_by_partition(times, text, least=0), is_time=True)
    text = (get.text(offsets) or default).strip()
    word = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    at = _by_partition(offsets, text, least=EARLIEST) if word is None else word
    if never in (at.values() if isinstance(at, Mapping) else (at,)):
        name = "latest (-1)" if never == LATEST else "earliest (-2)"
        raise OptionError(f"{offsets} of a batch cannot be {name}: nothing would be read")
    return Bound(at)


def _by_partition(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    example = '{"topic": {"0": 23, "1": 42}}'
    numbers = json_object(name, text, example, _is_number_by_partition)
    found = {TopicPartition(topic, int(p)): at for topic in numbers for p, at in numbers[topic].items()}
    if any(not least <= at <= MAX_INT64 for at in found.values()):
        raise OptionError(f"{name}: numbers are from {least} to {MAX_INT64}")
    return found


def _is_list_of_partitions(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)


def _is_number_by_partition(value: Any) -> bool:
    return isinstance(value, dict) and all(
        re.fullmatch(r"0|[1-9][0-9]{0,9}", name) and type(at) is int for name, at in value.items()
    )


def _columns(get: Getter) -> tuple[str, ...]:
    there = [name for name in COLUMNS if name != HEADERS or get.flag("includeHeaders", False)]
    text = get.text("columns")
    if text is None:
        return tuple(there)
    known = {name.lower(): name for name in there}
    wanted = [each.strip() for each in text.split(",")]
    for name in wanted:
        if name.lower() not in known:
            raise OptionError(f"columns: there is no {name!r}, only {', '.join(there)}")
    return tuple(dict.fromkeys(known[name.lower()] for name in wanted))
