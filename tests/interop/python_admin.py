"""What kafka-python's and confluent-kafka's admin clients can do on one node, step by step, as plain values.

What differs from one cluster to another (ids, ports, directories, times) is left out by the steps themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.clients import DEADLINE_S, kafka

SENT_MS = time.time_ns() // 1_000_000 - 60_000  # recent: retention leaves the records alone

Steps = dict[str, Any]


def _tried(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (kafka.errors.KafkaError, confluent_kafka.KafkaException) as error:
        told = error.args[0] if error.args else None
        named = told.name() if isinstance(told, confluent_kafka.KafkaError) else type(error).__name__
        return {"error": named}


def with_confluent(bootstrap: str) -> Steps:
    """confluent-kafka."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic, at = "confluent-a", confluent_kafka.TopicPartition("confluent-a", 0)
    of_topic, of_broker = ConfigResource(ResourceType.TOPIC, topic), ConfigResource(ResourceType.BROKER, "1")

    def done(futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        return _tried(lambda: future.result(DEADLINE_S))

    def made(**options: Any) -> Any:
        return done(admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "60000"})], **options))

    def changed(name: str, operation: AlterConfigOpType, value: str) -> Any:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(of_topic.restype, topic, incremental_configs=[entry])
        return done(admin.incremental_alter_configs([resource]))

    def configs(resource: ConfigResource, *names: str) -> Any:
        found = done(admin.describe_configs([resource]))
        if "error" in found:
            return found
        return {
            name: (entry.value, entry.source, entry.is_read_only, entry.is_sensitive, sorted(entry.synonyms))
            for name, entry in found.items()
            if not names or name in names
        }

    def offset(spec: OffsetSpec) -> Any:
        found = done(admin.list_offsets({at: spec}))
        return found if isinstance(found, dict) else (found.offset, found.timestamp)

    def sent() -> Any:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        for number in range(5):
            producer.produce(topic, str(number), partition=0, timestamp=SENT_MS + number)
        return producer.flush(DEADLINE_S)

    return {
        "only validated": made(validate_only=True),
        "created": made(),
        "created again": made(),
        "partitions added": done(admin.create_partitions([NewPartitions(topic, 4)])),
        "partitions taken": done(admin.create_partitions([NewPartitions(topic, 1)])),
        "sent": sent(),
        "earliest": offset(OffsetSpec.earliest()),
        "latest": offset(OffsetSpec.latest()),
        "of the largest time": offset(OffsetSpec.max_timestamp()),
        "by time": offset(OffsetSpec.for_timestamp(SENT_MS + 3)),
        "set": changed("cleanup.policy", AlterConfigOpType.SET, "compact"),
        "appended": changed("cleanup.policy", AlterConfigOpType.APPEND, "delete"),
        "refused": changed("retention.ms", AlterConfigOpType.SET, "soon"),
        "unknown": changed("no.such", AlterConfigOpType.SET, "1"),
        "configs": configs(of_topic),
        "deleted config": changed("retention.ms", AlterConfigOpType.DELETE, ""),
        "config after": configs(of_topic, "retention.ms"),
        "broker configs": configs(of_broker, "num.partitions", "message.max.bytes", "ssl.key.password"),
        "configs of none": configs(ConfigResource(ResourceType.TOPIC, "no-such")),
        "trimmed": getattr(
            done(admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 3)])), "low_watermark", None
        ),
        "election": _tried(lambda: _elected(admin, at)),
        "credentials": done({0: admin.describe_user_scram_credentials()}),
        "deleted": done(admin.delete_topics([topic])),
        "deleted again": done(admin.delete_topics([topic])),
    }


def _elected(admin: AdminClient, at: confluent_kafka.TopicPartition) -> Any:
    found = admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, [at]).result(DEADLINE_S)
    return [None if error is None else error.name() for error in found.values()]


def with_kafka_python(bootstrap: str) -> Steps:
    """kafka-python."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    topic = "python-a"
    at, none = kafka.TopicPartition(topic, 0), kafka.TopicPartition("no-such", 0)
    steps: Steps = {}

    def step(name: str, work: Callable[[], Any]) -> None:
        steps[name] = _without_ids(_tried(work))

    try:
        step("created", lambda: admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}}))
        step("created again", lambda: admin.create_topics({topic: {"num_partitions": 1}}))
        step("partitions added", lambda: admin.create_partitions({topic: 3}))
        step("topic partitions", lambda: admin.describe_topic_partitions([topic]))
        step("in pages", lambda: admin.describe_topic_partitions([topic], response_partition_limit=2))
        step("topics", lambda: admin.describe_topics([topic]))
        step("producers", lambda: admin.describe_producers([at]))
        step("producers of none", lambda: admin.describe_producers([none], broker_id=1))
        step("directories", lambda: admin.describe_log_dirs([at]))
        step("elected", lambda: admin.elect_leaders(0, {topic: [0]}, raise_errors=False))
        step("moves", lambda: admin.list_partition_reassignments())
        step("moved", lambda: admin.alter_partition_reassignments({at: [1]}))
        step("moved away", lambda: admin.alter_partition_reassignments({at: [1, 2]}))
        step("resources", lambda: admin.list_config_resources())
        step("credentials", lambda: admin.describe_user_scram_credentials())
        step("trimmed", lambda: admin.delete_records({at: 0}))
        step("deleted", lambda: admin.delete_topics([topic]))
        step("deleted again", lambda: admin.delete_topics([topic]))
    finally:
        admin.close()
    return steps


# what is another's in every cluster, or counts what others have left there
_DIFFERENT = {"topic_id", "log_dir", "total_bytes", "usable_bytes", "error_message", "host", "port"}


def _without_ids(told: Any) -> Any:
    if isinstance(told, dict):
        return {name: _without_ids(value) for name, value in told.items() if name not in _DIFFERENT}
    if isinstance(told, (list, tuple)):
        return [_without_ids(each) for each in told]
    return told if isinstance(told, (str, int, float, bool, bytes, type(None))) else str(told)
