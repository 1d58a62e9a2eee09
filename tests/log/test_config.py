"""Kafka's topic settings as the log understands them."""

from __future__ import annotations

import pytest

from barnabas.log.config import NEVER_MS, InvalidConfig, LogConfig

# name, a value, the field it sets, and the field's value
SETTINGS = [
    ("segment.bytes", "1048576", "segment_bytes", 1 << 20),
    ("segment.ms", "1", "segment_ms", 1),
    ("segment.jitter.ms", "5", "segment_jitter_ms", 5),
    ("segment.index.bytes", "4", "segment_index_bytes", 4),
    ("index.interval.bytes", "0", "index_interval_bytes", 0),
    ("retention.ms", "-1", "retention_ms", -1),
    ("retention.bytes", "-1", "retention_bytes", -1),
    ("cleanup.policy", "compact, delete", "cleanup_policy", frozenset({"compact", "delete"})),
    ("max.message.bytes", "100", "max_message_bytes", 100),
    ("message.timestamp.type", "LogAppendTime", "log_append_time", True),
    ("message.timestamp.before.max.ms", "7", "timestamp_before_max_ms", 7),
    ("message.timestamp.after.max.ms", "9", "timestamp_after_max_ms", 9),
    ("flush.messages", "1", "flush_messages", 1),
    ("flush.ms", "0", "flush_ms", 0),
    ("file.delete.delay.ms", "0", "file_delete_delay_ms", 0),
    ("producer.id.expiration.ms", "1", "producer_id_expiration_ms", 1),
    ("min.cleanable.dirty.ratio", "0.01", "min_cleanable_dirty_ratio", 0.01),
    ("min.compaction.lag.ms", "3", "min_compaction_lag_ms", 3),
    ("max.compaction.lag.ms", "4", "max_compaction_lag_ms", 4),
    ("delete.retention.ms", "0", "delete_retention_ms", 0),
]


@pytest.mark.parametrize(("name", "text", "field", "value"), SETTINGS)
def test_every_setting_goes_by_kafkas_name(name: str, text: str, field: str, value: object) -> None:
    assert getattr(LogConfig.from_properties({name: text}), field) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("segment.bytes", "1048575"),
        ("segment.bytes", str(1 << 31)),
        ("segment.ms", "0"),
        ("segment.index.bytes", "3"),
        ("index.interval.bytes", "-1"),
        ("retention.ms", "-2"),
        ("flush.messages", "0"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "half"),
        ("max.compaction.lag.ms", "0"),
        ("flush.ms", "-1"),
        ("max.message.bytes", "1e6"),
        ("segment.jitter.ms", ""),
        ("cleanup.policy", "shrink"),
        ("cleanup.policy", "delete,shrink"),
        ("message.timestamp.type", "logappendtime"),
    ],
)
def test_a_bad_value_is_named_with_its_setting(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name}=") as caught:
        LogConfig.from_properties({name: text})
    assert caught.value.wire.name == "INVALID_CONFIG"


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match=r"'segment\.byte'.*segment\.bytes"):
        LogConfig.from_properties({"segment.byte": "1048576"})


def test_the_defaults_are_kafkas() -> None:
    config = LogConfig.from_properties({})
    assert config.segment_bytes == 1073741824
    assert config.segment_ms == config.retention_ms == 604800000
    assert config.segment_index_bytes == 10485760
    assert config.index_interval_bytes == 4096
    assert config.max_message_bytes == 1048588
    assert config.file_delete_delay_ms == 60000
    assert config.timestamp_after_max_ms == 3600000
    assert config.producer_id_expiration_ms == 86400000
    assert config.flush_messages == config.flush_ms == config.timestamp_before_max_ms == NEVER_MS
    assert config.retention_bytes == -1
    assert config.cleanup_policy == {"delete"}
    assert not config.is_compacted
    assert LogConfig(cleanup_policy=frozenset({"compact", "delete"})).is_compacted
