"""The tables in the pages about Spark say what the code says: options, refusals, functions; and of those who
come from Spark's own connector no option of theirs is left without an answer.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import barnabas.spark
from barnabas.spark import consumer_settings, options, sink_options
from barnabas.spark.option_values import BOOTSTRAP

DOCS = Path(__file__).parents[2] / "docs"

# spark-sql-kafka-0-10 4.2.0: what its provider knows by name, and what its guide tells of
OFFICIAL_SOURCE = {
    "assign",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "includeHeaders",
    "kafka.auto.offset.reset",
    "kafka.bootstrap.servers",
    "kafka.enable.auto.commit",
    "kafka.group.id",
    "kafka.interceptor.classes",
    "kafka.key.deserializer",
    "kafka.value.deserializer",
    "kafkaConsumer.pollTimeoutMs",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
}
OFFICIAL_SINK = {
    "includeHeaders",
    "kafka.bootstrap.servers",
    "kafka.key.serializer",
    "kafka.partitioner.class",
    "kafka.value.serializer",
    "topic",
}
SOURCE = set(options._NAMES.values())
SINK = set(sink_options._NAMES.values())
CONSUMER = {
    *consumer_settings._CONSUMER_FIELDS,
    *consumer_settings._CLIENT_FIELDS,
    *consumer_settings._TEXTS,
    *consumer_settings._WORDS,
}
PRODUCER = {
    *sink_options._PRODUCER_FIELDS,
    *sink_options._CLIENT_FIELDS,
    *sink_options._WORDS,
    sink_options._CLIENT_ID,
}


def section(page: str, title: str) -> str:
    """What stands under a heading, up to the next."""
    text = (DOCS / page).read_text()
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def rows(text: str) -> list[tuple[list[str], str]]:
    """The names in the first column of tables, and what stands in the second."""
    found = re.findall(r"^\| (`[^|]*`) \|([^|]*)\|", text, re.MULTILINE)
    return [(re.findall(r"`([^`]+)`", names), second.strip()) for names, second in found]


def named(text: str) -> list[str]:
    """All names in the first column of tables; none stands there twice."""
    found = [name for names, _ in rows(text) for name in names]
    assert sorted(found) == sorted(set(found))
    return found


def test_options_of_the_source() -> None:
    assert set(named(section("spark-source.md", "Options"))) == SOURCE


def test_settings_of_the_consumer() -> None:
    text = section("spark-source.md", "Settings of the consumer")
    assert set(named(text)) == CONSUMER
    _, accepted, refused = re.split(r"^(?=Accepted|Refused)", text, flags=re.MULTILINE)
    pattern = r"`(kafka\.[a-z.]+[a-z])`"
    assert set(re.findall(pattern, accepted)) == set(consumer_settings._WITHOUT_EFFECT)
    assert set(re.findall(pattern, refused)) == set(consumer_settings._REFUSED)


def test_options_of_the_sink() -> None:
    text = section("spark-sink.md", "Options")
    assert set(named(text)) == SINK | PRODUCER
    assert [name for name in sink_options._INSTEAD if f"`{name}`" not in text] == []


def test_defaults_that_are_told() -> None:
    source = {names[0]: told for names, told in rows(section("spark-source.md", "Options"))}
    assert source["kafkaConsumer.pollTimeoutMs"] == f"`{options.POLL_TIMEOUT_MS}`"
    assert source["groupIdPrefix"] == f"`{options.GROUP_ID_PREFIX}`"
    assert source["maxTriggerDelay"] == f"`{options.MAX_TRIGGER_DELAY_MS // 60_000}m`"
    sink = {names[0]: told for names, told in rows(section("spark-sink.md", "Options"))}
    assert sink["markerTopic"] == f"`{sink_options.MARKER_TOPIC}`"
    assert sink["deliveryGuarantee"] == f"`{sink_options.GUARANTEES[0]}`"
    assert sink["kafka.transaction.timeout.ms"] == str(sink_options.TRANSACTION_TIMEOUT_MS)


@pytest.mark.parametrize(
    ("title", "official", "known"),
    [
        ("Options of the source", OFFICIAL_SOURCE, SOURCE | CONSUMER),
        ("Options of the sink", OFFICIAL_SINK, SINK | PRODUCER),
    ],
)
def test_what_becomes_of_the_official_options(title: str, official: set[str], known: set[str]) -> None:
    table = rows(section("spark-from-kafka.md", title))
    answers = {name: answer for names, answer in table for name in names}
    assert official <= set(answers)
    assert set(answers.values()) <= {"same", "differs", "nothing", "refused"}
    assert {name for name, answer in answers.items() if answer != "refused"} <= known
    assert not {name for name, answer in answers.items() if answer == "refused"} & known


def test_what_is_only_here() -> None:
    ours = {name for name in SOURCE | SINK if not name.startswith("kafka.")} - OFFICIAL_SOURCE - OFFICIAL_SINK
    sparks_own = {"checkpointLocation", "queryName"}
    assert set(named(section("spark-from-kafka.md", "Only here"))) == ours - sparks_own
    assert BOOTSTRAP in SOURCE & SINK


def test_every_refusal_of_the_sink_is_told_of() -> None:
    told = set(named(section("spark-sink.md", "What is refused")))
    source = Path(barnabas.spark.__file__).parent
    modules = ("checks", "commits", "exactly_once", "markers", "option_values", "sink_schema")
    raised = {
        name
        for module in modules
        for name in re.findall(
            r"^class (\w+)\((?:\w*Error)\):", (source / f"{module}.py").read_text(), re.MULTILINE
        )
    }
    assert len(raised) >= 7
    assert raised <= told


def test_every_function_is_told_of() -> None:
    text = (DOCS / "spark-pipelines.md").read_text() + (DOCS / "spark-source.md").read_text()
    assert [name for name in barnabas.spark.__all__ if f"`{name}" not in text] == []
