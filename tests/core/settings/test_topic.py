"""A topic's settings: inherited, overridden, refused."""

from __future__ import annotations

import pytest

from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.sources import resolve
from barnabas.core.settings.topic import (
    TOPIC,
    effective_topic_settings,
    log_config_properties,
    topic_defaults,
    validate_topic_overrides,
)


def inherited(name: str, **file: str) -> str:
    return topic_defaults(resolve(file={key.replace("_", "."): text for key, text in file.items()}))[name]


def test_defaults_are_kafkas() -> None:
    defaults = topic_defaults(resolve())
    assert defaults == {
        name: TOPIC[name].default
        for name in TOPIC
        if not TOPIC[name].is_internal and TOPIC[name].default is not None
    }


def test_the_finer_unit_decides() -> None:
    hour_ms = 3_600_000
    assert inherited("retention.ms") == str(168 * hour_ms)
    assert inherited("retention.ms", log_retention_hours="2") == str(2 * hour_ms)
    assert inherited("retention.ms", log_retention_hours="2", log_retention_minutes="3") == "180000"
    assert inherited("retention.ms", log_retention_minutes="3", log_retention_ms="4") == "4"
    assert inherited("retention.ms", log_retention_hours="-1") == "-1"
    assert inherited("segment.ms", log_roll_hours="1") == str(hour_ms)
    assert inherited("segment.ms", log_roll_hours="1", log_roll_ms="5") == "5"
    assert inherited("segment.jitter.ms", log_roll_jitter_hours="1") == str(hour_ms)
    assert inherited("flush.ms", log_flush_scheduler_interval_ms="9") == "9"
    assert inherited("flush.ms", log_flush_scheduler_interval_ms="9", log_flush_interval_ms="8") == "8"


@pytest.mark.parametrize(
    ("broker", "topic", "text"),
    [
        ("log.segment.bytes", "segment.bytes", "2000000"),
        ("message.max.bytes", "max.message.bytes", "77"),
        ("log.cleanup.policy", "cleanup.policy", "compact,delete"),
        ("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio", "0.25"),
        ("log.index.size.max.bytes", "segment.index.bytes", "4096"),
        ("log.segment.delete.delay.ms", "file.delete.delay.ms", "5"),
        ("min.insync.replicas", "min.insync.replicas", "2"),
        ("log.message.timestamp.type", "message.timestamp.type", "LogAppendTime"),
    ],
)
def test_broker_settings_are_inherited(broker: str, topic: str, text: str) -> None:
    assert topic_defaults(resolve(file={broker: text}))[topic] == text


def test_own_settings_come_first_and_are_tidied() -> None:
    defaults = topic_defaults(resolve(file={"log.segment.bytes": "2000000"}))
    overrides = {"segment.bytes": "3000000", "cleanup.policy": "compact , delete", "preallocate": "TRUE"}
    effective = effective_topic_settings(overrides, defaults)
    assert effective["segment.bytes"] == "3000000"
    assert effective["cleanup.policy"] == "compact,delete"
    assert effective["preallocate"] == "true"
    assert effective["retention.ms"] == "604800000"
    assert defaults["segment.bytes"] == "2000000"


def test_altered_broker_settings_reach_topics() -> None:
    settings = resolve(file={"log.retention.hours": "1"}).with_dynamic({}, {"log.retention.ms": "5"})
    assert topic_defaults(settings)["retention.ms"] == "5"


def test_a_log_hears_of_producers_as_well() -> None:
    properties = log_config_properties({"segment.ms": "7"}, resolve(file={"producer.id.expiration.ms": "9"}))
    assert properties["segment.ms"] == "7"
    assert properties["producer.id.expiration.ms"] == "9"
    assert "internal.segment.bytes" not in properties


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"segment.bytes": None, "retention.ms": None}, "retention.ms,segment.bytes"),
        (
            {"segment.bytes": "5"},
            "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576",
        ),
        ({"cleanup.policy": "gone"}, "String must be one of: compact, delete"),
        ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, "min.compaction.lag.ms (6) > max"),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
    ],
)
def test_what_a_topic_cannot_have(overrides: dict[str, str | None], words: str) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        validate_topic_overrides(overrides)
    assert words in str(refusal.value)
    assert refusal.value.wire.name == "INVALID_CONFIG"


def test_what_a_topic_can_have() -> None:
    validate_topic_overrides({})
    validate_topic_overrides({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})


def test_relations_count_what_is_inherited() -> None:
    defaults = topic_defaults(resolve(file={"log.cleaner.max.compaction.lag.ms": "10"}))
    validate_topic_overrides({"min.compaction.lag.ms": "10"}, defaults)
    with pytest.raises(InvalidSetting, match=r"max\.compaction\.lag\.ms \(10\)"):
        validate_topic_overrides({"min.compaction.lag.ms": "11"}, defaults)


def test_what_topics_have_by_default_is_worked_out_once() -> None:
    """A thousand topics may be described, or altered, in one request."""
    settings = resolve()
    assert topic_defaults(settings) is topic_defaults(settings)
    assert topic_defaults(settings) != topic_defaults(settings.with_dynamic({"log.retention.ms": "5"}, {}))
