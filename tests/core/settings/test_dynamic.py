"""What may be altered while a broker runs, judged as Apache Kafka 4.3 does where it can be done here."""

from __future__ import annotations

import pytest

from barnabas.core.settings.definition import InvalidAlteration
from barnabas.core.settings.dynamic import check_alteration
from barnabas.core.settings.sources import resolve

SETTINGS = resolve(file={"log.dirs": "/a,/b"})
THREADS = "Dynamic thread count update validation failed for"


def refusal(new: dict[str, str], *, of_one_broker: bool = True) -> str | None:
    try:
        check_alteration(new, SETTINGS, of_one_broker=of_one_broker)
    except InvalidAlteration as error:
        return f"{error.wire.name}: {error}"
    return None


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("node.id", "1", "Cannot update these configs dynamically: [node.id]"),
        ("log.retention.hours", "5", "Cannot update these configs dynamically: [log.retention.hours]"),
        ("log.segment.bytes", "x", "Invalid value x for configuration log.segment.bytes: Not a number"),
        ("log.segment.bytes", "5", "Value must be at least 1048576"),
        ("log.retention.ms", "0", "log.retention.ms must be -1"),
        ("log.cleaner.dedupe.buffer.size", "100", "log.cleaner.dedupe.buffer.size must be above 1 MiB"),
        (
            "ssl.keystore.location",
            "/x",
            "only per-listener using the listener prefix: [ssl.keystore.location]",
        ),
        ("listener.name.inside.ssl.keystore.location", "/x", "there is no TLS yet"),
        ("listener.name.inside.max.connections", "x", "Invalid value x for configuration max.connections"),
        ("sasl.enabled.mechanisms", "PLAIN", "there is no SASL yet"),
        ("principal.builder.class", "com.Mine", "no principals are built yet"),
        ("config.providers", "env", "are not resolved"),
        ("listeners", "PLAINTEXT://:1", "listeners cannot be altered while the broker runs"),
        ("num.io.threads", "100", f"{THREADS} num.io.threads=100, value should not be greater than double"),
        ("num.io.threads", "1", f"{THREADS} num.io.threads=1, value should be at least half"),
        ("log.cleaner.threads", "0", "at least 1"),
        ("log.cleaner.threads", "9", "more than double the current value 1"),
        ("max.connections", "0", "Invalid max.connections 0"),
        ("listener.name.inside.max.connections", "0", "Invalid max.connections 0"),
        ("max.connections.per.ip", "0", "max.connections.per.ip can be 0 only with"),
        ("max.connections.per.ip.overrides", "foo", "a list of host:count"),
        ("max.connection.creation.rate", "0", "Invalid max.connection.creation.rate 0"),
        ("cordoned.log.dirs", "/x", "cordoned.log.dirs must be some of"),
        ("log.local.retention.ms", "99999999999", "more than log.retention.ms property value: 604800000"),
        ("group.consumer.assignment.interval.ms", "99999", "must not be above"),
        ("leader.replication.throttled.rate", "x", "Not a number of type LONG"),
    ],
)
def test_what_cannot_be_altered(name: str, value: str, problem: str) -> None:
    found = refusal({name: value})
    assert found is not None
    assert found.startswith("INVALID_REQUEST: ")
    assert problem in found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.retention.ms", "-1"),
        ("log.cleanup.policy", ""),
        ("num.io.threads", "16"),
        ("max.connections.per.ip.overrides", "127.0.0.1:5"),
        ("cordoned.log.dirs", "/b"),
        ("cordoned.log.dirs", "*"),
        ("listeners", SETTINGS.text("listeners") or ""),
        ("sasl.enabled.mechanisms", "GSSAPI"),
        ("listener.name.inside.max.connections", "5"),
        ("follower.replication.throttled.rate", "1000"),
        ("of.a.plug.in", "anything"),
    ],
)
def test_what_can_be_altered(name: str, value: str) -> None:
    assert refusal({name: value}) is None


@pytest.mark.parametrize(
    ("name", "value", "is_refused"),
    [
        ("cordoned.log.dirs", "/b", True),
        ("listener.name.inside.ssl.keystore.location", "/x", True),
        ("listener.name.inside.max.connections", "5", False),
        ("log.retention.ms", "5", False),
    ],
)
def test_some_belong_to_one_broker(name: str, value: str, is_refused: bool) -> None:
    words = "Cannot update these configs at default cluster level, broker id must be specified"
    problem = f"INVALID_REQUEST: {words}: [{name}]"
    assert refusal({name: value}, of_one_broker=False) == (problem if is_refused else None)


def test_all_that_cannot_be_altered_is_named_at_once() -> None:
    found = refusal({"num.partitions": "3", "log.dirs": "/x", "log.retention.ms": "5"})
    assert found == "INVALID_REQUEST: Cannot update these configs dynamically: [num.partitions, log.dirs]"


def test_what_goes_together_is_judged_together() -> None:
    altered = SETTINGS.with_dynamic({"max.connections.per.ip.overrides": "127.0.0.1:5"}, {})
    with_it = {"max.connections.per.ip.overrides": "127.0.0.1:5", "max.connections.per.ip": "0"}
    check_alteration(with_it, altered, of_one_broker=True)
    check_alteration({"max.connections.per.ip": "0"}, altered, of_one_broker=False)
    with pytest.raises(InvalidAlteration):
        check_alteration({"max.connections.per.ip": "0"}, altered, of_one_broker=True)
