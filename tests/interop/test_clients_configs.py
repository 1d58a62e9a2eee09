"""The admin clients alter settings and find them again; `--target=kafka` says whether this is right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from tests.support.clients import CLIENTS, DEADLINE_S, create_topic, kafka, until, values

KafkaError = confluent_kafka.KafkaError
Changes = dict[str, tuple[AlterConfigOpType, str | None]]
SET, DELETE, APPEND = AlterConfigOpType.SET, AlterConfigOpType.DELETE, AlterConfigOpType.APPEND


@pytest.fixture
def confluent(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def kafka_python(bootstrap: str) -> Iterator[Any]:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    yield admin
    admin.close()


def altered(admin: AdminClient, kind: ResourceType, name: str, changes: Changes, **options: Any) -> None:
    entries = [
        ConfigEntry(setting, value, incremental_operation=operation)
        for setting, (operation, value) in changes.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource], **options)[resource].result(DEADLINE_S)


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    return found


def test_confluent_alters_a_topic(confluent: AdminClient, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    changes: Changes = {"retention.ms": (SET, "12345"), "cleanup.policy": (APPEND, "compact")}
    altered(confluent, ResourceType.TOPIC, topic, changes, validate_only=True)
    assert described(confluent, ResourceType.TOPIC, topic)["retention.ms"].value == "604800000"
    altered(confluent, ResourceType.TOPIC, topic, changes)
    until(
        lambda: described(confluent, ResourceType.TOPIC, topic)["retention.ms"].value == "12345",
        "retention",
    )
    found = described(confluent, ResourceType.TOPIC, topic)
    assert found["cleanup.policy"].value == "delete,compact"
    assert found["cleanup.policy"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert set(found["cleanup.policy"].synonyms) == {"cleanup.policy", "log.cleanup.policy"}
    altered(
        confluent,
        ResourceType.TOPIC,
        topic,
        {"retention.ms": (DELETE, None), "cleanup.policy": (DELETE, None)},
    )
    until(
        lambda: described(confluent, ResourceType.TOPIC, topic)["retention.ms"].is_default,
        "retention as it was",
    )


def test_confluent_makes_messages_too_large(confluent: AdminClient, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    assert CLIENTS[0].produce(bootstrap, topic, values(1, size=5000)) == [0]
    altered(confluent, ResourceType.TOPIC, topic, {"max.message.bytes": (SET, "1000")})
    until(
        lambda: described(confluent, ResourceType.TOPIC, topic)["max.message.bytes"].value == "1000", "limit"
    )
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        CLIENTS[0].produce(bootstrap, topic, values(1, size=5000))
    assert caught.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


@pytest.mark.parametrize(
    ("kind", "name", "setting", "value", "code", "words"),
    [
        (ResourceType.TOPIC, "no-topic", "retention.ms", "1", KafkaError.UNKNOWN_TOPIC_OR_PART, "not exist"),
        (ResourceType.BROKER, "1", "node.id", "1", KafkaError.INVALID_REQUEST, "Cannot update these configs"),
        (ResourceType.BROKER, "1", "log.segment.bytes", "x", KafkaError.INVALID_REQUEST, "Not a number"),
    ],
)
def test_confluent_is_told_why_not(
    confluent: AdminClient, kind: ResourceType, name: str, setting: str, value: str, code: int, words: str
) -> None:
    with pytest.raises(confluent_kafka.KafkaException, match=words) as caught:
        altered(confluent, kind, name, {setting: (SET, value)})
    assert caught.value.args[0].code() == code


def test_confluent_alters_the_broker(confluent: AdminClient) -> None:
    name = "log.cleaner.backoff.ms"
    altered(confluent, ResourceType.BROKER, "1", {name: (SET, "14999")})
    until(lambda: described(confluent, ResourceType.BROKER, "1")[name].value == "14999", "the setting")
    found = described(confluent, ResourceType.BROKER, "1")[name]
    assert found.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    assert not found.is_read_only
    altered(confluent, ResourceType.BROKER, "1", {name: (DELETE, None)})
    until(lambda: described(confluent, ResourceType.BROKER, "1")[name].is_default, "the default")


def test_confluent_replaces_all_settings(confluent: AdminClient, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, retention_ms="12345")
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "77777"})
    with pytest.deprecated_call():
        (done,) = confluent.alter_configs([resource]).values()
    done.result(DEADLINE_S)
    until(
        lambda: described(confluent, ResourceType.TOPIC, topic)["segment.ms"].value == "77777", "segment.ms"
    )
    assert described(confluent, ResourceType.TOPIC, topic)["retention.ms"].is_default


def test_kafka_python_alters_lists_and_resets(kafka_python: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    kinds, resource = kafka.admin.ConfigResourceType, kafka.admin.ConfigResource

    def shown(kind: str, name: str, setting: str) -> Any:
        of = resource(getattr(kinds, kind), name)
        found = kafka_python.describe_configs([of], config_filter="all")
        return found[kind.lower()][name][setting]["value"]

    kafka_python.alter_configs(
        [resource(kinds.TOPIC, topic, {"retention.ms": "777", "cleanup.policy": ("APPEND", "compact")})]
    )
    until(lambda: shown("TOPIC", topic, "retention.ms") == "777", "retention")
    assert shown("TOPIC", topic, "cleanup.policy") == "delete,compact"
    kafka_python.reset_configs([resource(kinds.TOPIC, topic, ["retention.ms"])])
    until(lambda: shown("TOPIC", topic, "retention.ms") == "604800000", "retention as it was")

    kafka_python.alter_configs([resource(kinds.GROUP, topic, {"consumer.session.timeout.ms": "50000"})])
    until(lambda: topic in kafka_python.list_config_resources(["GROUP"]).get("group", ()), "the group")
    assert shown("GROUP", topic, "consumer.session.timeout.ms") == "50000"
    kafka_python.reset_configs([resource(kinds.GROUP, topic, ["consumer.session.timeout.ms"])])
    until(lambda: topic not in str(kafka_python.list_config_resources(["GROUP"])), "no group")
    refused = kafka_python.alter_configs([resource(kinds.TOPIC, topic, {"retention.ms": "long"})])
    assert "Not a number of type LONG" in str(refused)
