"""One setting: text to value, value to text, and what is refused in which words."""

from __future__ import annotations

import pytest

from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.definition import (
    InvalidSetting,
    Kind,
    Setting,
    Value,
    allowed_values,
    format_value,
)
from barnabas.core.settings.table import Table
from barnabas.core.settings.topic import TOPIC


def setting(kind: Kind, check: str = "-") -> Setting:
    return Setting("some.name", kind, None, check)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, " TRUE ", True),
        (Kind.BOOLEAN, "false", False),
        (Kind.INT, " -7 ", -7),
        (Kind.INT, "+7", 7),
        (Kind.SHORT, "32767", 32767),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.DOUBLE, "1e-3", 0.001),
        (Kind.LIST, "", ()),
        (Kind.LIST, " a , b,c ", ("a", "b", "c")),
        (Kind.STRING, " text ", "text"),
        (Kind.CLASS, "some.Class", "some.Class"),
        (Kind.PASSWORD, "secret", "secret"),
    ],
)
def test_text_becomes_a_value(kind: Kind, text: str, value: Value) -> None:
    parsed = setting(kind).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.BOOLEAN, "yes"),
        (Kind.BOOLEAN, ""),
        (Kind.INT, "1_000"),
        (Kind.INT, "1.0"),
        (Kind.INT, ""),
        (Kind.INT, "-"),
        (Kind.INT, "2147483648"),
        (Kind.INT, "9" * 5000),
        (Kind.SHORT, "32768"),
        (Kind.LONG, "-9223372036854775809"),
        (Kind.DOUBLE, "1_0"),
        (Kind.DOUBLE, "half"),
    ],
)
def test_other_text_is_refused(kind: Kind, text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"some\.name") as refusal:
        setting(kind).parse(text)
    assert f"Invalid value {text} for configuration" in str(refusal.value)
    assert refusal.value.wire.name == "INVALID_CONFIG"


@pytest.mark.parametrize(
    ("kind", "check", "good", "bad", "reason", "words"),
    [
        (
            Kind.INT,
            "0..",
            "0",
            "-1",
            "-1 for configuration some.name: Value must be at least 0",
            "at least 0",
        ),
        (Kind.INT, "1..9", "9", "10", "Value must be no more than 9", "from 1 to 9"),
        (Kind.INT, "1..9|-1", "-1", "0", "between 1 and 9 or equal to -1", "from 1 to 9, or -1"),
        (Kind.DOUBLE, "0..1", "1.0", "1.01", "Value must be no more than 1", "from 0 to 1"),
        (Kind.STRING, "{a,b}", "b", "B", "String must be one of: a, b", "one of a, b"),
        (Kind.STRING, "~{a,b}", "B", "c", "one of (case insensitive): a, b", "one of a, b"),
        (Kind.STRING, "filled", "x", "", "String must be non-empty", "anything but the empty string"),
        (Kind.LIST, "[*]", "", "a,", "'some.name' values must not be empty.", "without empty elements"),
        (Kind.LIST, "[+]", "a", "", "Valid values include: any non-empty value", "at least one element"),
        (
            Kind.LIST,
            "[a,b]",
            "",
            "a,c",
            "value c for configuration some.name: String must be",
            "a list of a, b",
        ),
        (Kind.LIST, "[+a,b]", "a,b", "", "Valid values include: [a, b]", "a list of a, b, at least one"),
        (Kind.LIST, "pairs", "0:1,1:2", "0-1", "[partitionId]:[brokerId]", "partition:broker"),
        (Kind.LIST, "pairs", "*", "*,0:1", "Invalid value [*, 0:1] for", "partition:broker"),
        (Kind.LIST, "voters", "1@h:1,2@h:2", "h:1", "id@host:port", "id@host:port"),
        (Kind.LIST, "servers", "h:65535", "h:65536", "host:port", "host:port"),
    ],
)
def test_checks(kind: Kind, check: str, good: str, bad: str, reason: str, words: str) -> None:
    """Reasons are in Kafka's words, as its tools show them."""
    setting(kind, check).parse(good)
    with pytest.raises(InvalidSetting) as refusal:
        setting(kind, check).parse(bad)
    assert reason in str(refusal.value)
    assert words in allowed_values(check)


def test_a_list_counts_what_stands_twice_once() -> None:
    assert setting(Kind.LIST, "[a,b]").parse("a,b,a") == ("a", "b")


def test_a_secret_is_not_in_its_refusal() -> None:
    with pytest.raises(InvalidSetting) as refusal:
        setting(Kind.PASSWORD, "filled").parse("")
    assert str(refusal.value).startswith("Invalid value [hidden] for configuration some.name")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (("a", "b"), "a,b"),
        ((), ""),
        (7, "7"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (9.99e-4, "9.99E-4"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (123456789.125, "1.23456789125E8"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-2.5e-10, "-2.5E-10"),
        (-0.0, "-0.0"),
        (float("inf"), "Infinity"),
    ],
)
def test_values_are_shown_as_java_shows_them(value: Value, text: str | None) -> None:
    assert format_value(value) == text


@pytest.mark.parametrize("table", [BROKER, TOPIC])
def test_defaults_are_values(table: Table) -> None:
    for name in table:
        one = table[name]
        if one.default is not None:
            assert format_value(one.parse(one.default)) == one.default, name
            assert one.default_value() == one.parse(one.default), name
        else:
            assert one.default_value() is None
