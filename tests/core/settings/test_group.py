"""Settings of groups and of subscriptions to clients' metrics: what they may be, as Kafka 4.3 answers."""

from __future__ import annotations

import pytest

from barnabas.core.settings.broker_settings import Source
from barnabas.core.settings.client_metrics import validate_client_metrics
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.describe import describe_client_metrics, describe_group
from barnabas.core.settings.group import GROUP, group_default, validate_group_overrides
from barnabas.core.settings.sources import resolve

SETTINGS = resolve()
RESET = "share.auto.offset.reset"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("nope", "1", "Unknown group config name: nope"),
        ("consumer.session.timeout.ms", "0", "Value must be at least 1"),
        (
            "consumer.session.timeout.ms",
            "1",
            "greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            "share.heartbeat.interval.ms",
            "99999",
            "less than or equal to group.share.max.heartbeat.interval.ms",
        ),
        ("share.record.lock.duration.ms", "1", "Value must be at least 1000"),
        ("share.delivery.count.limit", "11", "less than or equal to group.share.max.delivery.count.limit"),
        ("share.partition.max.record.locks", "5000", "group.share.max.partition.max.record.locks"),
        ("streams.num.standby.replicas", "3", "group.streams.max.standby.replicas"),
        ("streams.assignment.interval.ms", "16000", "group.streams.max.assignment.interval.ms"),
        (RESET, "EARLIEST", "The value must be either 'earliest', 'latest' or of the format"),
        (RESET, "by_duration:PT-1H", "The value must be either"),
        (RESET, "by_duration:P", "The value must be either"),
        (RESET, "by_duration:P1DT", "The value must be either"),
        (RESET, "by_duration:", "The value must be either"),
        (RESET, f"by_duration:P{10**15}D", "The value must be either"),
        (
            "share.isolation.level",
            "READ_COMMITTED",
            "String must be one of: read_committed, read_uncommitted",
        ),
    ],
)
def test_what_a_group_cannot_have(name: str, value: str, problem: str) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        validate_group_overrides({name: value}, SETTINGS)
    assert problem in str(refusal.value)
    assert refusal.value.wire.name == "INVALID_CONFIG"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.assignment.interval.ms", "0"),
        ("streams.num.standby.replicas", "2"),
        ("share.renew.acknowledge.enable", "FALSE"),
        (RESET, "earliest"),
        (RESET, "by_duration:PT1H"),
        (RESET, "by_duration:p1dt-1h0.5s"),
        (RESET, "by_duration:-PT-1H"),
    ],
)
def test_what_a_group_can_have(name: str, value: str) -> None:
    validate_group_overrides({name: value}, SETTINGS)


def test_members_report_more_often_than_they_are_given_up() -> None:
    wide = resolve(file={"group.consumer.max.heartbeat.interval.ms": "60000"})
    problem = r"^consumer\.session\.timeout\.ms must be greater than consumer\.heartbeat\.interval\.ms$"
    with pytest.raises(InvalidSetting, match=problem):
        validate_group_overrides({"consumer.heartbeat.interval.ms": "45000"}, wide)
    both = {"consumer.heartbeat.interval.ms": "45000", "consumer.session.timeout.ms": "50000"}
    validate_group_overrides(both, wide)


def test_the_broker_says_where_a_group_does_not() -> None:
    settings = resolve(file={"group.consumer.session.timeout.ms": "50000"})
    assert group_default("consumer.session.timeout.ms", settings) == 50000
    assert group_default(RESET, settings) == "latest"
    described = {one.name: one for one in describe_group({"share.session.timeout.ms": "46000"}, settings)}
    assert list(described) == list(GROUP)
    timeout = described["consumer.session.timeout.ms"]
    assert (timeout.value, timeout.source, timeout.is_sensitive) == ("50000", Source.STATIC_BROKER, False)
    assert [(each.name, each.source) for each in timeout.synonyms] == [
        ("group.consumer.session.timeout.ms", Source.STATIC_BROKER),
        ("group.consumer.session.timeout.ms", Source.DEFAULT),
    ]
    own = described["share.session.timeout.ms"]
    assert (own.value, own.source, len(own.synonyms)) == ("46000", Source.GROUP, 2)
    assert described[RESET].synonyms == [(RESET, "latest", Source.DEFAULT)]
    assert all(one.documentation and one.documentation.endswith(".") for one in described.values())


@pytest.mark.parametrize(
    ("name", "setting", "value", "error", "problem"),
    [
        ("", "metrics", "*", "INVALID_REQUEST", "Subscription name can't be empty"),
        ("m", "nope", "1", "INVALID_REQUEST", "Unknown client metrics configuration: nope"),
        ("m", "interval.ms", "x", "INVALID_CONFIG", "Not a number of type INT"),
        ("m", "interval.ms", "99", "INVALID_REQUEST", "interval must be between 100 and 3600000 (1 hour)"),
        ("m", "interval.ms", "3600001", "INVALID_REQUEST", "Invalid value 3600001 for interval.ms"),
        ("m", "metrics", "a,,b", "INVALID_CONFIG", "Configuration 'metrics' values must not be empty."),
        ("m", "match", "x=y", "INVALID_CONFIG", "Illegal client matching pattern: x=y"),
        ("m", "match", "client_id", "INVALID_CONFIG", "Illegal client matching pattern: client_id"),
        ("m", "match", "client_id=a=b", "INVALID_CONFIG", "Illegal client matching pattern: client_id=a=b"),
        ("m", "match", "client_id=[", "INVALID_CONFIG", "Illegal client matching pattern: client_id=["),
        ("m", "match", "client_id=" + "(" * 9000, "INVALID_CONFIG", "Illegal client matching pattern"),
        ("m", "match", "client_id=a{99999999999}", "INVALID_CONFIG", "Illegal client matching pattern"),
    ],
)
def test_what_a_subscription_cannot_have(
    name: str, setting: str, value: str, error: str, problem: str
) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        validate_client_metrics(name, {setting: value})
    assert problem in str(refusal.value)
    assert refusal.value.wire.name == error


def test_what_a_subscription_can_have() -> None:
    validate_client_metrics("m", {"metrics": "*", "interval.ms": "100"})
    validate_client_metrics("m", {"metrics": "", "match": r"client_id=\p{Alpha}+, client_source_port = 9.*"})
    described = describe_client_metrics({"match": " client_id = a , client_id=b"})
    assert [(one.name, one.value, one.source) for one in described] == [
        ("interval.ms", "300000", Source.DEFAULT),
        ("match", "client_id = a,client_id=b", Source.CLIENT_METRICS),
        ("metrics", "", Source.DEFAULT),
    ]
    assert describe_client_metrics({}, ["metrics", "nope"])[0].documentation
