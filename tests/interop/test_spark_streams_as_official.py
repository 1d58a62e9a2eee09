"""Streams by `format("barnabas")` beside the same streams by Spark's own connector: the same micro-batches,
the same offsets in the checkpoint, which goes from one format to the other and back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin

from tests.interop.spark_session import BOOTSTRAP, FORMATS, OFFICIAL, OURS, BothFormats, Clusters, Refused
from tests.interop.spark_topics import COMPACTED_LEFT, TIME_MS, TRIMMED_TO
from tests.interop.test_spark_as_official import by_partition, each, times
from tests.support.clients import DEADLINE_S, Confluent, Message, create_topic

pytestmark = [pytest.mark.spark, pytest.mark.java]
TAKEN_TOGETHER = "official"  # by one process: one session of Spark, and two clusters, for all of them

EARLIEST = {"startingOffsets": "earliest"}
# name -> (options, how many micro-batches, how many rows); where there is nothing, Spark has an empty one
STREAMS: dict[str, tuple[dict[str, str], int, int]] = {
    "all there is": ({"subscribe": "everything", **EARLIEST, "includeHeaders": "true"}, 1, 500),
    "a few at a time": (
        {"subscribePattern": "every.*", **EARLIEST, "maxOffsetsPerTrigger": "150", "minPartitions": "6"},
        4,
        520,
    ),
    "at least a few": (
        {
            "subscribe": "everything",
            "startingOffsets": each("everything", 100, -2, -1),
            "minOffsetsPerTrigger": "20",
            "maxOffsetsPerTrigger": "200",
            "maxTriggerDelay": "2m",
            "maxRecordsPerPartition": "50",
        },
        2,
        67 + 167,
    ),
    "a time": (
        {
            "assign": '{"everything": [2]}',
            "startingTimestamp": str(TIME_MS + 4000),
            "groupIdPrefix": "letters",
        },
        1,
        33,
    ),
    "times": (
        {
            "subscribe": "everything",
            "startingOffsetsByTimestamp": times("everything", 0, 300, 10**6),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        1,
        167 + 67 + 0,
    ),
    "from the end": ({"subscribe": "everything"}, 1, 0),
    "what is committed": (
        {
            "subscribe": "transactional",
            **EARLIEST,
            "kafka.isolation.level": "read_committed",
            "maxOffsetsPerTrigger": "40",
        },
        4,
        80,
    ),
    "gaps": ({"subscribe": "compacted", **EARLIEST, "maxOffsetsPerTrigger": "60"}, 4, len(COMPACTED_LEFT)),
    "what is left of more": (
        {"subscribe": "trimmed", "startingOffsets": each("trimmed", 0), "failOnDataLoss": "false"},
        1,
        100 - TRIMMED_TO,
    ),
}


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream(spark_formats: BothFormats, spark_clusters: Clusters, tmp_path: Path, case: str) -> None:
    options, batches, rows = STREAMS[case]
    answers = spark_formats.ask_all(
        [
            {
                "do": "stream",
                "by": by,
                "options": {BOOTSTRAP: bootstrap, **options},
                "checkpoint": str(tmp_path / name / by),
            }
            for name, bootstrap in spark_clusters._asdict().items()
            for by in FORMATS
        ]
    )
    for answer in answers:
        if isinstance(answer, Refused):
            raise answer
    told = [_told(answer) for answer in answers]
    assert told[1] == told[0]
    assert told[2] == told[0]
    assert told[3] == told[0]
    assert len(answers[0]["batches"]) == batches
    assert sum(len(rows) for _, rows in answers[0]["batches"]) == rows


def _told(answer: dict[str, Any]) -> dict[str, Any]:
    """What must be the same: the schema, the rows of each micro-batch, and the offsets that it ended at."""
    return {
        "schema": answer["schema"],
        "batches": {number: by_partition(rows) for number, rows in answer["batches"]},
        "offsets": {number: json.loads(text) for number, text in answer["offsets"].items()},
    }


Run = Callable[[str], dict[str, Any]]


@pytest.fixture
def growing(spark_formats: BothFormats, spark_clusters: Clusters, topic: str, tmp_path: Path) -> Run:
    """A stream over a topic of its own, of one checkpoint, run by whichever format; not created yet."""

    def run(by: str) -> dict[str, Any]:
        options = {"subscribe": topic, **EARLIEST, "maxOffsetsPerTrigger": "40", "kafka.group.id": topic}
        given = {BOOTSTRAP: spark_clusters.barnabas, **options}
        answer: dict[str, Any] = spark_formats.ask(
            "stream", by=by, options=given, checkpoint=str(tmp_path / "c")
        )
        return answer

    return run


@pytest.mark.parametrize(("first", "second"), [(OFFICIAL, OURS), (OURS, OFFICIAL), (OURS, OURS)])
def test_a_checkpoint_goes_on(
    spark_clusters: Clusters, topic: str, growing: Run, first: str, second: str
) -> None:
    """By the other format and back, with new records and new partitions: every record comes once."""
    bootstrap = spark_clusters.barnabas
    create_topic(bootstrap, topic, 2)
    sent = [Message(b"%d" % number, partition=number % 3) for number in range(300)]
    Confluent().produce(bootstrap, topic, [one for one in sent[:100] if one.partition < 2])
    answers = [growing(first)]
    client = admin.AdminClient({"bootstrap.servers": bootstrap})
    client.create_partitions([admin.NewPartitions(topic, 3)])[topic].result(DEADLINE_S)
    Confluent().produce(bootstrap, topic, [one for one in sent[:100] if one.partition == 2] + sent[100:200])
    answers.append(growing(second))
    Confluent().produce(bootstrap, topic, sent[200:])
    answers.append(growing(first))
    assert all(answer["batches"] for answer in answers)
    numbers = [number for answer in answers for number, _ in answer["batches"]]
    assert numbers == list(range(len(numbers)))
    rows = [row for answer in answers for _, rows in answer["batches"] for row in rows]
    found = {of: [bytes.fromhex(row[1]) for row in of_one] for of, of_one in by_partition(rows).items()}
    assert found == {
        (topic, partition): [one.value for one in sent if one.partition == partition]
        for partition in range(3)
    }
    last = json.loads(answers[-1]["offsets"][str(numbers[-1])])
    assert last == {topic: {"0": 100, "1": 100, "2": 100}}


# what neither streams
MISUSES: dict[str, dict[str, str]] = {
    "an end": {"subscribe": "everything", "endingOffsets": "latest"},
    "no such topic": {"subscribe": "nowhere", "startingOffsets": "earliest"},
    "least above largest": {
        "subscribe": "everything",
        "maxOffsetsPerTrigger": "10",
        "minOffsetsPerTrigger": "20",
    },
    "gone": {"subscribe": "trimmed", "startingOffsets": each("trimmed", 0)},
}


@pytest.mark.parametrize("case", MISUSES)
def test_misuse_of_a_stream(
    spark_formats: BothFormats, spark_clusters: Clusters, tmp_path: Path, case: str
) -> None:
    options = {BOOTSTRAP: spark_clusters.barnabas, **MISUSES[case]}
    official, ours = spark_formats.ask_all(
        [{"do": "stream", "by": by, "options": options, "checkpoint": str(tmp_path / by)} for by in FORMATS]
    )
    assert isinstance(official, Refused), official
    assert isinstance(ours, Refused), ours
