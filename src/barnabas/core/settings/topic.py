"""A topic's settings, and the broker settings that are their defaults.

A topic's value is its own, or that of the first of its broker synonyms that has one (`segment.ms` is
`log.roll.ms`, or else `log.roll.hours` in milliseconds), or its default. CreateTopics and the altering of
configs check a topic's own settings with `validate_topic_overrides`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.definition import InvalidSetting, Value, format_value
from barnabas.core.settings.table import Table

# name, kind, default, check: see definition.py
_ROWS = """\
cleanup.policy list delete [compact,delete]
compression.gzip.level int -1 1..9|-1
compression.lz4.level int 9 1..17
compression.type string producer {uncompressed,zstd,lz4,snappy,gzip,producer}
compression.zstd.level int 3 -131072..22
delete.retention.ms long 86400000 0..
file.delete.delay.ms long 60000 0..
flush.messages long 9223372036854775807 1..
flush.ms long 9223372036854775807 0..
follower.replication.throttled.replicas list '' pairs
index.interval.bytes int 4096 0..
internal.segment.bytes int null - fixed internal
leader.replication.throttled.replicas list '' pairs
local.retention.bytes long -2 -2..
local.retention.ms long -2 -2..
max.compaction.lag.ms long 9223372036854775807 1..
max.message.bytes int 1048588 0..
message.timestamp.after.max.ms long 3600000 0..
message.timestamp.before.max.ms long 9223372036854775807 0..
message.timestamp.type string CreateTime {CreateTime,LogAppendTime}
min.cleanable.dirty.ratio double 0.5 0..1
min.compaction.lag.ms long 0 0..
min.insync.replicas int 1 1..
preallocate boolean false -
remote.log.copy.disable boolean false -
remote.log.delete.on.disable boolean false -
remote.storage.enable boolean false -
retention.bytes long -1 -
retention.ms long 604800000 -1..
segment.bytes int 1073741824 1048576..
segment.index.bytes int 10485760 4..
segment.jitter.ms long 0 0..
segment.ms long 604800000 1..
unclean.leader.election.enable boolean false -
"""

TOPIC = Table(_ROWS)

_MINUTE_MS = 60 * 1000
_HOUR_MS = 60 * _MINUTE_MS

# the broker's settings behind each topic setting, in order of precedence, and their unit
SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (
        ("log.flush.interval.ms", 1),
        ("log.flush.scheduler.interval.ms", 1),
    ),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (
        ("log.roll.jitter.ms", 1),
        ("log.roll.jitter.hours", _HOUR_MS),
    ),
    "segment.ms": (
        ("log.roll.ms", 1),
        ("log.roll.hours", _HOUR_MS),
    ),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}


@lru_cache(maxsize=8)  # settings are immutable, and read once a topic: the current and the static ones
def topic_defaults(broker: BrokerSettings) -> Mapping[str, str]:
    """The settings of a topic without overrides, as text by topic setting."""
    return {name: text for name in TOPIC if (text := _default(name, broker)) is not None}


def effective_topic_settings(overrides: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """All settings of a topic: its own over `topic_defaults`."""
    return {**defaults, **{name: _normalised(name, text) for name, text in overrides.items()}}


def log_config_properties(overrides: Mapping[str, str], broker: BrokerSettings) -> dict[str, str]:
    """All settings that a log reads: the topic's, and the broker's for every log."""
    return {
        **effective_topic_settings(overrides, topic_defaults(broker)),
        "producer.id.expiration.ms": str(broker.integer("producer.id.expiration.ms")),
    }


def _normalised(name: str, text: str) -> str:
    setting = TOPIC.get(name)
    return text if setting is None else setting.normalised(text)


def validate_topic_overrides(
    overrides: Mapping[str, str | None], defaults: Mapping[str, str] | None = None
) -> None:
    """InvalidSetting if a topic cannot have these settings; `defaults` are its values without them."""
    nulls = sorted(name for name, text in overrides.items() if text is None)
    if nulls:
        raise InvalidSetting(f"Null value not supported for topic configs: {','.join(nulls)}")
    for name in overrides:
        if name not in TOPIC:
            raise InvalidSetting(f"Unknown topic config name: {name}")
    values: dict[str, Value] = {name: TOPIC[name].parse(text or "") for name, text in overrides.items()}
    for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"):
        inherited = (defaults or {}).get(name)
        values.setdefault(name, TOPIC[name].parse(inherited) if inherited else TOPIC[name].default_value())
    _check_relations(values)


def _check_relations(values: Mapping[str, Value]) -> None:
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(low, int)
    assert isinstance(high, int)
    if low > high:
        raise InvalidSetting(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )
    if values.get("remote.storage.enable"):
        raise InvalidSetting(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def _default(name: str, broker: BrokerSettings) -> str | None:
    for synonym, unit in SYNONYMS.get(name, ()):
        value = broker.get(synonym)
        if value is None:
            continue
        if unit != 1:
            assert isinstance(value, int)
            value *= unit
        if name == "retention.ms" and isinstance(value, int) and value < 0:
            value = -1  # every negative retention means forever
        return format_value(value)
    return format_value(TOPIC[name].default_value())
