"""The options `kafka.*` of a read: settings of Kafka's consumer, under Kafka's names. Pure.

Settings that apply are used, and settings that cannot change the result are accepted. All others are refused
by name, since ignoring them could read other records than requested.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.client.cluster import ClientConfig
from barnabas.client.consumer import ConsumerConfig, Reset
from barnabas.spark.option_values import BOOTSTRAP, MAX_INT32, Getter, OptionError, number

GROUP_ID = "kafka.group.id"
# a task reads a single partition: its responses can be larger than those of a consumer of many
PARTITION_FETCH_BYTES = 8 * 1024 * 1024

_CONSUMER_FIELDS = {
    "kafka.default.api.timeout.ms": "default_timeout_ms",
    "kafka.fetch.max.bytes": "fetch_max_bytes",
    "kafka.fetch.max.wait.ms": "fetch_max_wait_ms",
    "kafka.fetch.min.bytes": "fetch_min_bytes",
    "kafka.max.partition.fetch.bytes": "partition_max_bytes",
}
_CLIENT_FIELDS = {
    "kafka.metadata.max.age.ms": "metadata_max_age_ms",
    "kafka.reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "kafka.reconnect.backoff.ms": "reconnect_backoff_ms",
    "kafka.request.timeout.ms": "request_timeout_ms",
    "kafka.retry.backoff.max.ms": "retry_backoff_max_ms",
    "kafka.retry.backoff.ms": "retry_backoff_ms",
    "kafka.socket.connection.setup.timeout.ms": "connect_timeout_ms",
}
_TEXTS = ("kafka.client.id", GROUP_ID)
_WORDS = {
    "kafka.isolation.level": ("read_uncommitted", "read_committed"),
    "kafka.security.protocol": ("plaintext",),
}
# of a consumer in a group, of buffers, of bookkeeping: they do not change the records that are read
_WITHOUT_EFFECT = (
    "kafka.allow.auto.create.topics",
    "kafka.auto.commit.interval.ms",
    "kafka.check.crcs",
    "kafka.client.dns.lookup",
    "kafka.client.rack",  # read from leaders: with a rack, a response may only name another replica
    "kafka.connections.max.idle.ms",
    "kafka.exclude.internal.topics",
    "kafka.group.instance.id",
    "kafka.heartbeat.interval.ms",
    "kafka.max.poll.interval.ms",
    "kafka.max.poll.records",
    "kafka.metric.reporters",
    "kafka.metrics.num.samples",
    "kafka.metrics.recording.level",
    "kafka.metrics.sample.window.ms",
    "kafka.partition.assignment.strategy",
    "kafka.receive.buffer.bytes",
    "kafka.send.buffer.bytes",
    "kafka.session.timeout.ms",
    "kafka.socket.connection.setup.timeout.max.ms",
)
_REFUSED = {
    "kafka.auto.offset.reset": "startingOffsets says where to begin",
    "kafka.enable.auto.commit": "progress is kept in the checkpoint, and shown in the group by mirrorOffsets",
    "kafka.interceptor.classes": "use functions of Spark on the rows",
    "kafka.key.deserializer": "keys come as bytes; decode them with functions of Spark",
    "kafka.value.deserializer": "values come as bytes; decode them with functions of Spark",
}


def consumer_config(kafka: Mapping[str, str], reset: Reset) -> ConsumerConfig:
    """The consumer configuration for these settings, with names in lower case."""
    numbers: dict[str, Any] = {"partition_max_bytes": PARTITION_FETCH_BYTES}
    client_numbers: dict[str, Any] = {}
    get = Getter(kafka)
    for name, text in kafka.items():
        if name in _CONSUMER_FIELDS:
            numbers[_CONSUMER_FIELDS[name]] = number(name, text, largest=MAX_INT32)
        elif name in _CLIENT_FIELDS:
            client_numbers[_CLIENT_FIELDS[name]] = number(name, text)
        elif name in _REFUSED:
            raise OptionError(f"{name} is not for a source: {_REFUSED[name]}")
        elif name not in _WORDS and name not in _TEXTS and name not in _WITHOUT_EFFECT:
            known = sorted([*_CONSUMER_FIELDS, *_CLIENT_FIELDS, *_WORDS, *_TEXTS])
            raise OptionError(f"{name} means nothing here yet; there are: {BOOTSTRAP}, {', '.join(known)}")
    get.choice("kafka.security.protocol", _WORDS["kafka.security.protocol"])
    is_committed = get.choice("kafka.isolation.level", _WORDS["kafka.isolation.level"]) == "read_committed"
    client = ClientConfig(
        client_id=get.text("kafka.client.id") or "barnabas-spark", allow_auto_topic_creation=False
    )
    return ConsumerConfig(
        reset=reset,
        read_committed=is_committed,
        client=client._replace(**client_numbers),
    )._replace(**numbers)
