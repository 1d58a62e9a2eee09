"""Writes by `format("barnabas")` beside the same writes by Spark's own connector, as librdkafka reads them;
and streams from topic to topic by either source into either sink, over restarts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from tests.interop.spark_session import BOOTSTRAP, FORMATS, OFFICIAL, OURS, BothFormats, Clusters, Refused
from tests.support.clients import DEADLINE_S, Confluent, Message, confluent_consumer, create_topic, until

pytestmark = [pytest.mark.spark, pytest.mark.java]
TAKEN_TOGETHER = "official"  # by one process: one session of Spark, and two clusters, for all of them

PARTITIONS = 3
ROWS = 90
KEY = "IF(id % 7 = 0, NULL, CONCAT('schlüssel ', id % 10)) AS key"
VALUE = "IF(id % 11 = 0, NULL, IF(id % 13 = 0, '', CONCAT('wert ☂ ', id))) AS value"
NUMBERED = "ENCODE(CAST(id AS STRING), 'utf-8') AS value"
NUMBER = "NAMED_STRUCT('key', 'número', 'value', ENCODE(CAST(id AS STRING), 'utf-8'))"
NOTHING = "NAMED_STRUCT('key', 'nothing', 'value', CAST(NULL AS BINARY))"
HEADERS = f"IF(id % 3 = 0, NULL, IF(id % 3 = 1, ARRAY(), ARRAY({NUMBER}, {NOTHING}))) AS headers"
PARTITION = f"CAST(id % {PARTITIONS} AS INT) AS partition"


class Written(NamedTuple):
    """What of a record must be the same, whoever wrote it."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_back(bootstrap: str, topic: str, count: int) -> list[Written]:
    """What is committed in a topic, partition by partition, as soon as it is that much or more."""
    found: list[Written] = []

    def is_there() -> bool:
        # the markers of a transaction may come after the answer to its commit
        found[:] = _committed(bootstrap, topic)
        return len(found) >= count

    until(is_there, f"{count} records in {topic}")
    return found


def _committed(bootstrap: str, topic: str) -> Iterable[Written]:
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True}
    with confluent_consumer(bootstrap, **settings) as consumer:
        for partition in range(PARTITIONS):
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            while (message := consumer.poll(DEADLINE_S)) is not None:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    break
                if error is not None:
                    raise KafkaException(error)
                headers = tuple(message.headers() or ())
                yield Written(partition, message.key(), message.value(), headers)


# name -> (what is selected, options)
WRITES: dict[str, tuple[list[str], dict[str, str]]] = {
    "values alone": ([NUMBERED], {}),
    "keys": ([KEY, VALUE, "id"], {}),
    "headers": ([KEY, VALUE, HEADERS, PARTITION], {"includeHeaders": "true"}),
    "a topic of each row": (["'{topic}' AS topic", NUMBERED, PARTITION], {"topic": ""}),
    "the option before the column": (["'nowhere' AS topic", NUMBERED, PARTITION], {}),
    "settings of a producer": (
        [KEY, VALUE, PARTITION],
        {
            "kafka.acks": "all",
            "kafka.compression.type": "lz4",
            "kafka.linger.ms": "5",
            "kafka.batch.size": "500",
            "kafka.max.request.size": "100000",
            "kafka.client.id": "somebody",
        },
    ),
}


@pytest.mark.parametrize("case", WRITES)
def test_a_batch(spark_formats: BothFormats, spark_clusters: Clusters, topic: str, case: str) -> None:
    select, given = WRITES[case]
    places = [(bootstrap, by) for bootstrap in spark_clusters for by in FORMATS]
    questions = []
    for bootstrap, by in places:
        name = f"{topic}-{by}"
        create_topic(bootstrap, name, PARTITIONS)
        options = {BOOTSTRAP: bootstrap, "topic": name, **given}
        options = {name: value for name, value in options.items() if value}
        columns = [each.replace("{topic}", name) for each in select]
        questions.append({"do": "write", "by": by, "options": options, "select": columns, "rows": ROWS})
    for answer in spark_formats.ask_all(questions):
        if isinstance(answer, Refused):
            raise answer
    found = [read_back(bootstrap, f"{topic}-{by}", ROWS) for bootstrap, by in places]
    without_partition = [[each._replace(partition=-1) for each in records] for records in found]
    for number in (1, 2, 3):
        assert sorted(without_partition[number], key=repr) == sorted(without_partition[0], key=repr)
        assert _certain(found[number]) == _certain(found[0])


def _certain(records: list[Written]) -> list[Written]:
    """Records whose partition is certain: it is that of their key, or of the column."""
    return sorted((each for each in records if each.key is not None), key=repr)


MISUSES: dict[str, tuple[list[str], dict[str, str], str]] = {
    "no topic": ([NUMBERED], {"topic": ""}, "topic"),
    "no value": ([KEY], {}, "value"),
    "a key that is a number": (["id AS key", NUMBERED], {}, "key"),
    "a value that is a number": (["id AS value"], {}, "value"),
    "headers that are text": ([NUMBERED, "'a' AS headers"], {}, "headers"),
    "a partition that is text": ([NUMBERED, "'1' AS partition"], {}, "partition"),
    "a row without topic": ([NUMBERED, "CAST(NULL AS STRING) AS topic"], {"topic": ""}, "topic"),
    "a serializer": ([NUMBERED], {"kafka.value.serializer": "String"}, "serializer"),
}


@pytest.mark.parametrize("case", MISUSES)
def test_misuse(spark_formats: BothFormats, spark_clusters: Clusters, case: str) -> None:
    select, given, said = MISUSES[case]
    options = {BOOTSTRAP: spark_clusters.barnabas, "topic": "empty", **given}
    options = {name: value for name, value in options.items() if value}
    official, ours = spark_formats.ask_all(
        [{"do": "write", "by": by, "options": options, "select": select, "rows": 10} for by in FORMATS]
    )
    assert isinstance(official, Refused)
    assert isinstance(ours, Refused)
    assert said in str(ours)


@pytest.mark.parametrize("by", [(OFFICIAL, OFFICIAL), (OFFICIAL, OURS), (OURS, OURS)])
def test_a_stream_from_topic_to_topic(
    spark_formats: BothFormats, spark_clusters: Clusters, topic: str, tmp_path: Path, by: tuple[str, str]
) -> None:
    """Two runs of one query on each cluster: what came in is there once, in the same order."""
    source, sink = by
    sent = [
        Message(
            b"%d" % number, b"k%d" % (number % 5), (("n", b"%d" % number),), partition=number % PARTITIONS
        )
        for number in range(200)
    ]
    for bootstrap in spark_clusters:
        create_topic(bootstrap, topic, PARTITIONS)
        create_topic(bootstrap, f"{topic}-copy", PARTITIONS)
    for part in (sent[:120], sent[120:]):
        for bootstrap in spark_clusters:
            Confluent().produce(bootstrap, topic, part)
        for answer in spark_formats.ask_all(
            [
                {
                    "do": "copy",
                    "source": source,
                    "source_options": {**_of(bootstrap), "subscribe": topic},
                    "sink": sink,
                    "sink_options": {BOOTSTRAP: bootstrap, "topic": f"{topic}-copy"},
                    "select": ["key", "value", "headers", "partition"],
                    "checkpoint": str(tmp_path / name),
                }
                for name, bootstrap in spark_clusters._asdict().items()
            ]
        ):
            if isinstance(answer, Refused):
                raise answer
    expected = [Written(each.partition, each.key, each.value, each.headers) for each in sent]
    expected.sort(key=lambda each: each.partition)  # stable: the order within a partition stays
    for bootstrap in spark_clusters:
        assert read_back(bootstrap, f"{topic}-copy", len(sent)) == expected


def _of(bootstrap: str) -> dict[str, Any]:
    return {
        BOOTSTRAP: bootstrap,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "60",
        "kafka.isolation.level": "read_committed",
    }
