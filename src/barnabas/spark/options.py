"""The options of a read, named as those of Spark's own Kafka connector. Pure; knows nothing of Spark.

An option that is not known is an error that names it: one that was ignored would read other records than
were asked for. Names are case-insensitive, as everywhere in Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from barnabas.client.cluster import ClientConfig
from barnabas.client.consumer import ConsumerConfig, Reset
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.spark.option_values import (
    BOOTSTRAP,
    MAX_INT32,
    MAX_INT64,
    Getter,
    OptionError,
    bootstrap,
    number,
)

POLL_TIMEOUT_MS = 120_000
# a task reads one partition alone: larger answers than a consumer of many would ask for
PARTITION_FETCH_BYTES = 8 * 1024 * 1024

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
HEADERS = "headers"

_CHOICES = ("assign", "subscribe", "subscribePattern")
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_OTHERS = (
    "columns",
    "failOnDataLoss",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "maxRecordsPerPartition",
    "minPartitions",
    "startingOffsetsByTimestampStrategy",
)
_OF_A_TABLE = "option."  # how Spark writes the options of a table among its properties
_NAMES = {name.lower(): name for name in (*_CHOICES, *_STARTS, *_ENDS, *_OTHERS, BOOTSTRAP)}


class Bound(NamedTuple):
    """Where a read begins or ends: offsets or times, of each partition or one for all.

    Offsets may be EARLIEST or LATEST.
    """

    at: Mapping[TopicPartition, int] | int
    is_time: bool = False


class Topics(NamedTuple):
    """What is read: partitions, or all of the topics that are named or match. One of the three is there."""

    partitions: tuple[TopicPartition, ...] = ()
    names: tuple[str, ...] = ()
    pattern: str = ""


class ReadOptions(NamedTuple):
    """A read, as it was asked for."""

    bootstrap: str
    topics: Topics
    start: Bound
    end: Bound
    consumer: ConsumerConfig
    columns: tuple[str, ...]
    min_partitions: int | None = None
    max_records: int | None = None  # of a Spark partition
    fail_on_data_loss: bool = True
    start_at_end_without_match: bool = False  # where no record is as young as the time to start from
    poll_timeout_ms: int = POLL_TIMEOUT_MS


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of `spark.read.format("barnabas")`; OptionError where they will not do."""
    options = {name.lower(): value for name, value in given.items()}
    if any(name.startswith(_OF_A_TABLE) for name in options):
        raise OptionError(
            "CREATE TABLE does not work: Spark does not hand a table's options to a source in Python when "
            "it is read; use CREATE TEMPORARY VIEW name USING barnabas OPTIONS (...)"
        )
    kafka = {name: value for name, value in options.items() if name.startswith("kafka.")}
    unknown = sorted(name for name in given if name.lower() not in _NAMES and name.lower() not in kafka)
    if unknown:
        raise OptionError(f"unknown option {', '.join(unknown)}; there are: {', '.join(_NAMES.values())}")
    get = Getter(options)
    fails = get.flag("failOnDataLoss", True)
    return ReadOptions(
        bootstrap(kafka.pop(BOOTSTRAP, "")),
        _topics(get),
        _bound(get, _STARTS, "earliest", never=LATEST),
        _bound(get, _ENDS, "latest", never=EARLIEST),
        _consumer_config(kafka, Reset.NONE if fails else Reset.EARLIEST),
        _columns(get),
        get.number("minPartitions"),
        get.number("maxRecordsPerPartition"),
        fails,
        get.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        get.number("kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS,
    )


def _topics(get: Getter) -> Topics:
    given = [name for name in _CHOICES if get.text(name) is not None]
    if len(given) != 1:
        raise OptionError(f"give exactly one of {', '.join(_CHOICES)}; given: {', '.join(given) or 'none'}")
    text = get.text(given[0]) or ""
    if given[0] == "assign":
        lists = _json(given[0], text, '{"topic": [0, 1]}', _is_list_of_partitions)
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


def _bound(get: Getter, names: tuple[str, str, str], default: str, *, never: int) -> Bound:
    """Where to begin or end, by the first of the options that is given; `never` makes no sense there."""
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
    numbers = _json(name, text, example, _is_number_by_partition)
    found = {TopicPartition(topic, int(p)): at for topic in numbers for p, at in numbers[topic].items()}
    if any(not least <= at <= MAX_INT64 for at in found.values()):
        raise OptionError(f"{name}: numbers are from {least} to {MAX_INT64}")
    return found


def _json(name: str, text: str, example: str, is_good: Callable[[Any], bool]) -> dict[str, Any]:
    try:
        parsed = json.loads(text, object_pairs_hook=partial(_once, name))
    except (ValueError, RecursionError) as error:
        if isinstance(error, OptionError):
            raise
        parsed = None
    if not isinstance(parsed, dict) or not all(is_good(each) for each in parsed.values()):
        raise OptionError(f"{name}={text!r}: write JSON such as {example}")
    return parsed


def _once(name: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names stand once each: of two, JSON would keep the last without a word."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise OptionError(f"{name}: {key} is named twice")
        found[key] = value
    return found


def _is_list_of_partitions(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)


def _is_number_by_partition(value: Any) -> bool:
    return isinstance(value, dict) and all(
        re.fullmatch(r"0|[1-9][0-9]{0,9}", name) and type(number) is int for name, number in value.items()
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


# settings of a consumer that mean something here -> the field of ConsumerConfig, or of ClientConfig
_CONSUMER_FIELDS = {
    "kafka.default.api.timeout.ms": "default_timeout_ms",
    "kafka.fetch.max.bytes": "fetch_max_bytes",
    "kafka.fetch.max.wait.ms": "fetch_max_wait_ms",
    "kafka.fetch.min.bytes": "fetch_min_bytes",
    "kafka.max.partition.fetch.bytes": "partition_max_bytes",
}
_CLIENT_FIELDS = {
    "kafka.metadata.max.age.ms": "metadata_max_age_ms",
    "kafka.reconnect.backoff.ms": "reconnect_backoff_ms",
    "kafka.request.timeout.ms": "request_timeout_ms",
    "kafka.retry.backoff.ms": "retry_backoff_ms",
}
_WORDS = {
    "kafka.isolation.level": ("read_uncommitted", "read_committed"),
    "kafka.security.protocol": ("plaintext",),
}


def _consumer_config(kafka: Mapping[str, str], reset: Reset) -> ConsumerConfig:
    numbers: dict[str, Any] = {"partition_max_bytes": PARTITION_FETCH_BYTES}
    client_numbers: dict[str, Any] = {}
    get = Getter(kafka)
    for name, text in kafka.items():
        if name in _CONSUMER_FIELDS:
            numbers[_CONSUMER_FIELDS[name]] = number(name, text, largest=MAX_INT32)
        elif name in _CLIENT_FIELDS:
            client_numbers[_CLIENT_FIELDS[name]] = number(name, text)
        elif name not in _WORDS and name not in ("kafka.client.id", "kafka.client.rack"):
            known = sorted(
                [*_CONSUMER_FIELDS, *_CLIENT_FIELDS, *_WORDS, "kafka.client.id", "kafka.client.rack"]
            )
            raise OptionError(f"{name} means nothing here yet; there are: {BOOTSTRAP}, {', '.join(known)}")
    get.choice("kafka.security.protocol", _WORDS["kafka.security.protocol"])
    is_committed = get.choice("kafka.isolation.level", _WORDS["kafka.isolation.level"]) == "read_committed"
    client = ClientConfig(
        client_id=get.text("kafka.client.id") or "barnabas-spark", allow_auto_topic_creation=False
    )
    return ConsumerConfig(
        reset=reset,
        read_committed=is_committed,
        rack_id=get.text("kafka.client.rack") or "",
        client=client._replace(**client_numbers),
    )._replace(**numbers)
