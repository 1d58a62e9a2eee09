"""Reads by `format("barnabas")` beside the same reads by Spark's own connector, `format("kafka")`, of Apache
Kafka and of Barnabas: the same schema, rows, and order within a partition, for every option that both have;
and what one refuses, the other refuses.

It runs on PySpark 4.2.0, the connector's own and the oldest that ours knows.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from tests.interop.spark_session import BOOTSTRAP, FORMATS, OFFICIAL, OURS, BothFormats, Clusters, Refused
from tests.interop.spark_topics import COMPACTED_LEFT, TIME_MS, TRIMMED_TO

pytestmark = [pytest.mark.spark, pytest.mark.java]
TAKEN_TOGETHER = "official"  # by one process: one session of Spark, and two clusters, for all of them

# a column's place in a row
VALUE, TOPIC, PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE = range(1, 7)


def by_partition(rows: list[list[Any]]) -> dict[tuple[str, int], list[list[Any]]]:
    """Rows of each partition, in the order in which they came."""
    found: dict[tuple[str, int], list[list[Any]]] = defaultdict(list)
    for row in rows:
        found[row[TOPIC], row[PARTITION]].append(row)
    return found


def each(topic: str, *numbers: int) -> str:
    """Offsets, or times, by partition."""
    return json.dumps({topic: {str(partition): number for partition, number in enumerate(numbers)}})


def times(topic: str, *numbers: int) -> str:
    """Times by partition, as numbers of messages."""
    return each(topic, *(TIME_MS + 10 * number for number in numbers))


def read_all(formats: BothFormats, clusters: Clusters, options: dict[str, str]) -> list[Any]:
    """Kafka by the official connector and by ours, then Barnabas by both."""
    asked = [(bootstrap, by) for bootstrap in clusters for by in FORMATS]
    return formats.ask_all(
        [{"do": "read", "by": by, "options": {BOOTSTRAP: bootstrap, **options}} for bootstrap, by in asked]
    )


ALL = {"subscribe": "everything", "includeHeaders": "true"}
COMMITTED = {"subscribe": "transactional", "kafka.isolation.level": "read_committed"}
LENIENT = {"subscribe": "trimmed", "failOnDataLoss": "false"}
# name -> (options, how many rows there are)
READS: dict[str, tuple[dict[str, str], int]] = {
    "a topic": (ALL, 500),
    "several topics": (
        {"subscribe": "everything, every.other", "startingOffsets": "earliest", "endingOffsets": "latest"},
        520,
    ),
    "no records": ({"subscribe": "empty"}, 0),
    "a pattern": ({"subscribePattern": "every.*"}, 520),
    "a pattern that matches a part of some": ({"subscribePattern": "every[a-z]+"}, 500),
    "partitions": ({"assign": '{"everything": [2, 0], "every.other": [0]}'}, 167 + 166 + 20),
    "offsets": (
        {
            **ALL,
            "startingOffsets": each("everything", 10, -2, 166),
            "endingOffsets": each("everything", 20, 50, -1),
        },
        10 + 50,
    ),
    "times": (
        {**ALL, "startingTimestamp": str(TIME_MS + 995), "endingTimestamp": str(TIME_MS + 3000)},
        200,
    ),
    "times by partition": (
        {
            **ALL,
            "startingOffsetsByTimestamp": times("everything", 0, 300, 400),
            "endingOffsetsByTimestamp": times("everything", 30, 300, 9999),
        },
        10 + 0 + 33,
    ),
    "times before offsets": (
        {**ALL, "startingTimestamp": str(TIME_MS + 4500), "startingOffsets": each("everything", 0, 0, 0)},
        50,
    ),
    "later than all there is": (
        {
            "subscribe": "everything",
            "startingTimestamp": str(TIME_MS + 10**6),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        0,
    ),
    "in many pieces": ({**ALL, "minPartitions": "7"}, 500),
    "in small pieces": ({**ALL, "maxRecordsPerPartition": "60"}, 500),
    "letters of another size": ({"SUBSCRIBE": "everything", "INCLUDEheaders": "TRUE"}, 500),
    "settings of a consumer": (
        {
            "subscribe": "everything",
            "kafka.max.partition.fetch.bytes": "2000",
            "kafka.fetch.max.bytes": "3000",
            "kafka.fetch.min.bytes": "1",
            "kafka.fetch.max.wait.ms": "100",
            "kafka.request.timeout.ms": "20000",
            "kafka.client.id": "somebody",
            "kafkaConsumer.pollTimeoutMs": "30000",
            "fetchOffset.numRetries": "2",
            "fetchOffset.retryIntervalMs": "20",
            "groupIdPrefix": "letters",
        },
        500,
    ),
    "the time of appending": ({"subscribe": "appended"}, 30),
    "all of transactions": ({"subscribe": "transactional"}, 122),
    "what is committed": ({**COMMITTED, "minPartitions": "9"}, 80),
    "up to something aborted": ({**COMMITTED, "endingOffsets": each("transactional", 18, 18)}, 20),
    "gaps": ({"subscribe": "compacted", "minPartitions": "9"}, len(COMPACTED_LEFT)),
    "nothing but a gap": (
        {
            "subscribe": "compacted",
            "startingOffsets": each("compacted", 20),
            "endingOffsets": each("compacted", 200),
        },
        0,
    ),
    "what is left": ({"subscribe": "trimmed"}, 100 - TRIMMED_TO),
    "what is left of more": ({**LENIENT, "startingOffsets": each("trimmed", 0)}, 100 - TRIMMED_TO),
}


@pytest.mark.parametrize("case", READS)
def test_a_batch(spark_formats: BothFormats, spark_clusters: Clusters, case: str) -> None:
    options, count = READS[case]
    answers = read_all(spark_formats, spark_clusters, options)
    for answer in answers:
        if isinstance(answer, Refused):
            raise answer
    schemas = {answer["schema"] for answer in answers}
    assert len(schemas) == 1
    rows = [by_partition(answer["rows"]) for answer in answers]
    assert rows[1] == rows[0]
    assert rows[3] == rows[2]
    assert len(answers[0]["rows"]) == len(answers[2]["rows"]) == count
    if case != "the time of appending":
        assert rows[2] == rows[0]


@pytest.mark.parametrize(
    "where",
    [
        "partition = 1 AND offset >= 20 AND offset < 40 AND offset <> 30 AND value IS NOT NULL",
        "timestamp >= TIMESTAMP_MILLIS(1700000001000) AND timestamp < TIMESTAMP_MILLIS(1700000002000)",
        "offset IN (3, 5, 900) OR key IS NULL",
    ],
)
def test_filters(spark_formats: BothFormats, spark_clusters: Clusters, where: str) -> None:
    """Ours reads less where it can, and that is the only difference."""
    asked = {BOOTSTRAP: spark_clusters.kafka, **ALL}
    official, ours = spark_formats.ask_all(
        [
            {"do": "read", "by": OFFICIAL, "options": asked, "where": where},
            {"do": "read", "by": OURS, "options": {**asked, "pushFilters": "true"}, "where": where},
        ]
    )
    assert by_partition(ours["rows"]) == by_partition(official["rows"])
    assert 0 < len(ours["rows"]) < 500


# what neither reads, and what ours says to it
MISUSES: dict[str, tuple[dict[str, str], str]] = {
    "no topic": ({}, "exactly one of assign, subscribe, subscribePattern"),
    "two ways to name topics": ({"subscribe": "empty", "subscribePattern": "e.*"}, "exactly one of"),
    "an empty name": ({"subscribe": " "}, "names no topic"),
    "partitions without JSON": ({"assign": "empty"}, "write JSON"),
    "no such topic": ({"subscribe": "nowhere"}, "nowhere"),
    "from the end": ({"subscribe": "everything", "startingOffsets": "latest"}, "cannot be latest"),
    "from the end of one": ({"subscribe": "empty", "startingOffsets": each("empty", 0, -1)}, "cannot be"),
    "to the beginning": ({"subscribe": "everything", "endingOffsets": "earliest"}, "cannot be earliest"),
    "offsets without JSON": ({"subscribe": "empty", "startingOffsets": "first"}, "write JSON"),
    "too few partitions": ({"subscribe": "empty", "startingOffsets": each("empty", 0)}, "not named"),
    "another topic's": ({"subscribe": "empty", "startingOffsets": each("everything", 0, 0)}, "not"),
    "no pieces": ({"subscribe": "empty", "minPartitions": "0"}, "minPartitions"),
    "half a piece": ({"subscribe": "empty", "minPartitions": "0.5"}, "minPartitions"),
    "neither true nor false": ({"subscribe": "empty", "includeHeaders": "maybe"}, "true or false"),
    "no time": ({"subscribe": "everything", "startingTimestamp": "yesterday"}, "startingTimestamp"),
    "too late": ({"subscribe": "everything", "startingTimestamp": str(TIME_MS * 2)}, "as young as"),
    "another strategy": (
        {"subscribe": "everything", "startingOffsetsByTimestampStrategy": "earliest"},
        "must be one of",
    ),
    "gone": ({"subscribe": "trimmed", "startingOffsets": each("trimmed", 0)}, "failOnDataLoss"),
    "a reset": ({"subscribe": "empty", "kafka.auto.offset.reset": "earliest"}, "auto.offset.reset"),
    "another type": ({"subscribe": "empty", "kafka.value.deserializer": "String"}, "deserializer"),
    "commits": ({"subscribe": "empty", "kafka.enable.auto.commit": "true"}, "auto.commit"),
}


@pytest.mark.parametrize("case", MISUSES)
def test_misuse_of_a_batch(spark_formats: BothFormats, spark_clusters: Clusters, case: str) -> None:
    options, said = MISUSES[case]
    given = {BOOTSTRAP: spark_clusters.barnabas, **options}
    official, ours = spark_formats.ask_all(
        [{"do": "read", "by": by, "options": given} for by in FORMATS],
    )
    assert isinstance(official, Refused)
    assert isinstance(ours, Refused)
    assert said in str(ours)


# where Spark's own connector says nothing and reads something else
STRICTER: dict[str, tuple[dict[str, str], str]] = {
    "an option that there is not": ({"subscribe": "empty", "startingoffset": "latest"}, "startingoffset"),
    "no such partition": ({"assign": '{"empty": [0, 7]}'}, "no partition 7"),
}


@pytest.mark.parametrize("case", STRICTER)
def test_what_only_ours_refuses(spark_formats: BothFormats, spark_clusters: Clusters, case: str) -> None:
    options, said = STRICTER[case]
    given = {BOOTSTRAP: spark_clusters.barnabas, **options}
    official, ours = spark_formats.ask_all([{"do": "read", "by": by, "options": given} for by in FORMATS])
    assert official["rows"] == []
    assert isinstance(ours, Refused)
    assert said in str(ours)
