"""DescribeConfigs' rows; test_against_kafka.py compares every one of them with Kafka's."""

from __future__ import annotations

from barnabas.core.settings.broker_settings import Source
from barnabas.core.settings.definition import Kind
from barnabas.core.settings.describe import Described, Synonym, describe_broker, describe_topic
from barnabas.core.settings.sources import resolve


def by_name(rows: list[Described]) -> dict[str, Described]:
    return {row.name: row for row in rows}


def test_all_that_is_public_is_described() -> None:
    assert len(describe_broker(resolve())) == 340
    assert len(describe_topic({}, resolve())) == 33


def test_only_what_was_asked_for_in_that_order() -> None:
    names = ["num.partitions", "no.such", "listeners", "num.partitions"]
    assert [row.name for row in describe_broker(resolve(), names)] == ["num.partitions", "listeners"]
    assert [row.name for row in describe_topic({}, resolve(), ["segment.ms", "nothing"])] == ["segment.ms"]
    assert describe_topic({}, resolve(), []) == []


def test_layers_show_as_synonyms() -> None:
    settings = resolve(file={"message.max.bytes": "1"}).with_dynamic(
        {"message.max.bytes": "3"}, {"message.max.bytes": "2"}
    )
    layers = [
        Synonym("message.max.bytes", "3", Source.DYNAMIC_BROKER),
        Synonym("message.max.bytes", "2", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym("message.max.bytes", "1", Source.STATIC_BROKER),
        Synonym("message.max.bytes", "1048588", Source.DEFAULT),
    ]
    (broker,) = describe_broker(settings, ["message.max.bytes"])
    assert broker.value == "3"
    assert broker.synonyms == layers
    assert broker.source is Source.DYNAMIC_BROKER
    assert not broker.read_only
    assert not broker.is_default
    (topic,) = describe_topic({"max.message.bytes": "4"}, settings, ["max.message.bytes"])
    assert topic.value == "4"
    assert topic.synonyms == [Synonym("max.message.bytes", "4", Source.TOPIC), *layers]
    assert topic.documentation


def test_secrets_and_strangers_have_no_value() -> None:
    rows = by_name(describe_broker(resolve(file={"ssl.key.password": "hunter2", "some.plugin": "hunter2"})))
    for name, kind in (("ssl.key.password", Kind.PASSWORD), ("some.plugin", Kind.UNKNOWN)):
        assert rows[name].is_sensitive
        assert rows[name].kind is kind
        assert rows[name].value is None
        assert rows[name].synonyms == [Synonym(name, None, Source.STATIC_BROKER)]
    assert rows["some.plugin"].documentation is None
    assert "hunter2" not in repr(rows)


def test_a_value_known_only_by_another_unit_has_no_synonyms() -> None:
    (row,) = describe_topic({}, resolve(file={"log.retention.hours": "1"}), ["retention.ms"])
    assert row.value == "3600000"
    assert row.synonyms == []
    assert row.is_default
