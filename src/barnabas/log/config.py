"""The settings of a partition's log.

Outside, the names are Kafka's (`segment.bytes`); inside, typed fields with their units. Ranges are checked
when settings come from users (`from_properties`), so that tests may use segments of a few bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.records.compression import Codec

UNLIMITED = -1
NEVER_MS = 2**63 - 1


class InvalidConfig(BarnabasError):
    """A setting that does not exist, or a value outside its range."""

    wire = wire_error("INVALID_CONFIG")


_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one partition's log; Kafka's defaults."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = UNLIMITED
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    max_message_bytes: int = 1048588
    log_append_time: bool = False
    timestamp_before_max_ms: int = NEVER_MS
    timestamp_after_max_ms: int = 3600 * 1000
    flush_messages: int = NEVER_MS
    flush_ms: int = NEVER_MS
    file_delete_delay_ms: int = 60 * 1000
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER_MS
    delete_retention_ms: int = 24 * 3600 * 1000
    compression_type: str = "producer"
    gzip_level: int = -1
    lz4_level: int = 9
    zstd_level: int = 3

    # derived values that every append needs
    is_compacted: bool = field(init=False, repr=False)
    roll_ms: int = field(init=False, repr=False)
    plain_batch_bytes: int = field(init=False, repr=False)
    codec: Codec | None = field(init=False, repr=False)  # of every batch; None: the producer's

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_compacted", "compact" in self.cleanup_policy)
        # records must have left the active segment by the time they must be compacted
        roll_ms = min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms
        object.__setattr__(self, "roll_ms", roll_ms)
        codec = _CODECS[self.compression_type]
        object.__setattr__(self, "codec", codec)
        largest = 0 if self.log_append_time or codec else min(self.max_message_bytes, self.segment_bytes)
        object.__setattr__(self, "plain_batch_bytes", largest)

    @property
    def codec_level(self) -> int | None:
        """The codec's compression level on its own scale; None is its default."""
        match self.codec:
            case Codec.GZIP:
                return None if self.gzip_level == -1 else self.gzip_level
            case Codec.LZ4:  # Kafka's 9 is the fast compressor, all others are levels of the thorough one
                return None if self.lz4_level == 9 else min(max(self.lz4_level, 3), 12)
            case Codec.ZSTD:
                return self.zstd_level
        return None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LogConfig:
        """From Kafka's topic settings, by Kafka's names; an unknown name or a bad value is InvalidConfig.

        `known_settings` lists the names that a log uses.
        """
        fields: dict[str, Any] = {}
        for name, text in properties.items():
            setting = _SETTINGS.get(name)
            if setting is None:
                raise InvalidConfig(f"unknown setting {name!r} for a log; known are {', '.join(_SETTINGS)}")
            fields[setting.field] = setting.read(name, text)
        return cls(**fields)


class CleanerSettings(NamedTuple):
    """The settings of a node's log cleaner: `log.cleaner.*`, without those that topics have themselves."""

    backoff_ms: int = 15_000
    dedupe_buffer_bytes: int = 128 << 20
    io_buffer_bytes: int = 512 << 10
    load_factor: float = 0.9
    max_bytes_per_second: float = float("inf")


class _Setting(NamedTuple):
    field: str
    read: Callable[[str, str], Any]


def _whole(low: int, high: int = NEVER_MS) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise InvalidConfig(f"{name}={text!r} is not a whole number") from None
        if not low <= value <= high:
            raise InvalidConfig(f"{name}={value} is outside its range, {low} to {high}")
        return value

    return read


def _ratio(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InvalidConfig(f"{name}={text!r} is not a number") from None
    if not 0 <= value <= 1:  # also excludes NaN
        raise InvalidConfig(f"{name}={text} is outside its range, 0 to 1")
    return value


def _policies(name: str, text: str) -> frozenset[str]:
    policies = frozenset(part.strip() for part in text.split(",") if part.strip())
    if policies - {"compact", "delete"}:  # an empty policy keeps everything
        raise InvalidConfig(f"{name}={text!r} must be delete, compact or compact,delete")
    return policies


def _compression(name: str, text: str) -> str:
    if text not in _CODECS:
        raise InvalidConfig(f"{name}={text!r} must be one of {', '.join(_CODECS)}")
    return text


def _is_log_append_time(name: str, text: str) -> bool:
    if text not in ("CreateTime", "LogAppendTime"):
        raise InvalidConfig(f"{name}={text!r} must be CreateTime or LogAppendTime")
    return text == "LogAppendTime"


_INT32_MAX = 2**31 - 1
_SETTINGS: dict[str, _Setting] = {
    "segment.bytes": _Setting("segment_bytes", _whole(1 << 20, _INT32_MAX)),
    "segment.ms": _Setting("segment_ms", _whole(1)),
    "segment.jitter.ms": _Setting("segment_jitter_ms", _whole(0)),
    "segment.index.bytes": _Setting("segment_index_bytes", _whole(4, _INT32_MAX)),
    "index.interval.bytes": _Setting("index_interval_bytes", _whole(0, _INT32_MAX)),
    "retention.ms": _Setting("retention_ms", _whole(-1)),
    "retention.bytes": _Setting("retention_bytes", _whole(-(2**63))),
    "cleanup.policy": _Setting("cleanup_policy", _policies),
    "max.message.bytes": _Setting("max_message_bytes", _whole(0, _INT32_MAX)),
    "message.timestamp.type": _Setting("log_append_time", _is_log_append_time),
    "message.timestamp.before.max.ms": _Setting("timestamp_before_max_ms", _whole(0)),
    "message.timestamp.after.max.ms": _Setting("timestamp_after_max_ms", _whole(0)),
    "flush.messages": _Setting("flush_messages", _whole(1)),
    "flush.ms": _Setting("flush_ms", _whole(0)),
    "file.delete.delay.ms": _Setting("file_delete_delay_ms", _whole(0)),
    "producer.id.expiration.ms": _Setting("producer_id_expiration_ms", _whole(1, _INT32_MAX)),
    "min.cleanable.dirty.ratio": _Setting("min_cleanable_dirty_ratio", _ratio),
    "min.compaction.lag.ms": _Setting("min_compaction_lag_ms", _whole(0)),
    "max.compaction.lag.ms": _Setting("max_compaction_lag_ms", _whole(1)),
    "delete.retention.ms": _Setting("delete_retention_ms", _whole(0)),
    "compression.type": _Setting("compression_type", _compression),
    "compression.gzip.level": _Setting("gzip_level", _whole(-1, 9)),
    "compression.lz4.level": _Setting("lz4_level", _whole(1, 17)),
    "compression.zstd.level": _Setting("zstd_level", _whole(-131072, 22)),
}


def known_settings() -> frozenset[str]:
    """The topic settings that a log uses; the others are used by higher layers."""
    return frozenset(_SETTINGS)
