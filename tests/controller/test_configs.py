"""What altering settings comes to: operations, several resources at once, validation only."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.controller.configs import (
    APPEND,
    CLIENT_METRICS_RESOURCE,
    DELETE,
    GROUP_RESOURCE,
    SET,
    SUBTRACT,
    Alteration,
    Change,
    ConfigRules,
    alter_configs,
)
from barnabas.core.errors import WIRE_ERRORS
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.topic import validate_topic_overrides
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from tests.controller.clusters import Cluster, topic

POLICY = "cleanup.policy"


def validate(kind: int, name: str, overrides: Mapping[str, str]) -> None:
    if kind == TOPIC_RESOURCE:
        validate_topic_overrides(overrides)
    elif "bad" in overrides:
        raise InvalidSetting("bad")


RULES = ConfigRules(validate, lambda kind, name: "delete" if name == POLICY else None)


def altered(cluster: Cluster, *asked: Alteration, validate_only: bool = False) -> list[str]:
    decision = alter_configs(cluster.image, asked, RULES, validate_only=validate_only)
    return [WIRE_ERRORS[one.error_code].name for one in cluster.carry_out(decision)]


def one(
    operation: int, name: str, value: str | None, *, resource: tuple[int, str] = (TOPIC_RESOURCE, "t")
) -> Alteration:
    return Alteration(*resource, (Change(name, operation, value),))


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster(1)
    made.create(topic("t"))
    return made


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(SET, "compact")], "compact"),
        ([(APPEND, "compact")], "delete,compact"),  # to what the broker's own settings give
        ([(SUBTRACT, "delete")], ""),
        ([(APPEND, "compact"), (APPEND, "compact,delete")], "delete,compact"),
        ([(SET, "delete,compact"), (SUBTRACT, "delete, compact")], "compact"),  # a blank is part of a name
        ([(SET, "compact"), (SUBTRACT, "delete")], "compact"),
        ([(SET, "compact"), (DELETE, None)], None),
        ([(SET, "compact"), (DELETE, "whatever")], None),
        ([(SET, "compact"), (APPEND, "gone")], "compact"),  # refused, so as it was
    ],
)
def test_operations(cluster: Cluster, steps: list[tuple[int, str | None]], expected: str | None) -> None:
    for operation, value in steps:
        altered(cluster, one(operation, POLICY, value))
    assert cluster.image.topic_config("t").get(POLICY) == expected


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (
            one(APPEND, "segment.bytes", "1"),
            "INVALID_CONFIG",
            "Can't APPEND to key segment.bytes because its type is not LIST.",
        ),
        (
            one(SUBTRACT, "metrics", "a", resource=(CLIENT_METRICS_RESOURCE, "m")),
            "INVALID_CONFIG",
            "Can't SUBTRACT to key metrics because its type is not LIST.",
        ),
        (one(9, POLICY, "x"), "INVALID_REQUEST", "Unknown operations type 9"),
        (one(SET, "nope", "1"), "INVALID_CONFIG", "Unknown topic config name: nope"),
        (
            one(SET, "nope", "1", resource=(TOPIC_RESOURCE, "missing")),
            "INVALID_CONFIG",
            "Unknown topic config name: nope",
        ),
        (
            one(SET, POLICY, "delete", resource=(TOPIC_RESOURCE, "missing")),
            "UNKNOWN_TOPIC_OR_PARTITION",
            "The topic 'missing' does not exist.",
        ),
        (
            one(SET, POLICY, "delete", resource=(TOPIC_RESOURCE, "")),
            "INVALID_REQUEST",
            "Default topic resources are not allowed.",
        ),
        (
            one(SET, "a", "1", resource=(GROUP_RESOURCE, "")),
            "INVALID_REQUEST",
            "Default group resources are not allowed.",
        ),
        (
            one(SET, "a", "1", resource=(BROKER_RESOURCE, "7")),
            "BROKER_ID_NOT_REGISTERED",
            "No node with id 7 found.",
        ),
        (
            one(SET, "min.insync.replicas", "2", resource=(BROKER_RESOURCE, "1")),
            "INVALID_CONFIG",
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (one(SET, "a", "1", resource=(64, "x")), "INVALID_REQUEST", "Unknown resource type 64"),
    ],
)
def test_refusals(cluster: Cluster, asked: Alteration, error: str, message: str) -> None:
    decision = alter_configs(cluster.image, [asked], RULES)
    (result,) = decision.response
    assert (WIRE_ERRORS[result.error_code].name, result.error_message) == (error, message)
    assert decision.records == []


def test_to_forget_what_nobody_knows_is_no_error(cluster: Cluster) -> None:
    assert altered(cluster, one(DELETE, "nope", None)) == ["NONE"]


def test_all_that_is_set_is_replaced(cluster: Cluster) -> None:
    def whole(**configs: str) -> Alteration:
        changes = tuple(Change(name.replace("_", "."), SET, value) for name, value in configs.items())
        return Alteration(TOPIC_RESOURCE, "t", changes, is_whole=True)

    assert altered(cluster, whole(retention_ms="5", segment_ms="70000")) == ["NONE"]
    assert altered(cluster, whole(segment_ms="80000")) == ["NONE"]
    assert cluster.image.topic_config("t") == {"segment.ms": "80000"}
    assert altered(cluster, whole()) == ["NONE"]
    assert cluster.image.topic_config("t") == {}


def test_the_clusters_minimum_of_replicas_is_not_forgotten_by_leaving_it_out(cluster: Cluster) -> None:
    everything = Alteration(BROKER_RESOURCE, "", (), is_whole=True)
    assert altered(cluster, everything) == ["INVALID_CONFIG"]
    kept = Alteration(BROKER_RESOURCE, "", (Change("min.insync.replicas", SET, "1"),), is_whole=True)
    assert altered(cluster, kept) == ["NONE"]


def test_resources_are_decided_one_by_one(cluster: Cluster) -> None:
    asked = [
        one(SET, "bad", "1", resource=(GROUP_RESOURCE, "g")),
        one(SET, "consumer.session.timeout.ms", "50000", resource=(GROUP_RESOURCE, "h")),
        one(SET, "interval.ms", "1000", resource=(CLIENT_METRICS_RESOURCE, "m")),
        one(SET, POLICY, "compact"),
    ]
    assert altered(cluster, *asked, validate_only=True) == ["INVALID_CONFIG", "NONE", "NONE", "NONE"]
    assert cluster.image.topic_config("t") == {}
    assert altered(cluster, *asked) == ["INVALID_CONFIG", "NONE", "NONE", "NONE"]
    set_now = {resource: configs for resource, configs in cluster.image.configs.items() if resource[0] != 4}
    assert set_now == {
        (GROUP_RESOURCE, "h"): {"consumer.session.timeout.ms": "50000"},
        (CLIENT_METRICS_RESOURCE, "m"): {"interval.ms": "1000"},
        (TOPIC_RESOURCE, "t"): {POLICY: "compact"},
    }


def test_a_list_does_not_outgrow_what_a_record_can_hold(cluster: Cluster) -> None:
    rules = ConfigRules(lambda kind, name, overrides: None, lambda kind, name: "")
    of_broker = (BROKER_RESOURCE, "")
    first, second = (
        one(APPEND, "x", "a" * 20_000, resource=of_broker),
        one(APPEND, "x", "b" * 20_000, resource=of_broker),
    )
    for asked, error in ((first, "NONE"), (second, "INVALID_CONFIG")):
        (result,) = cluster.carry_out(alter_configs(cluster.image, [asked], rules))
        assert WIRE_ERRORS[result.error_code].name == error
    assert cluster.image.broker_config()["x"] == "a" * 20_000
