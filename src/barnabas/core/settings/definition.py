"""One setting: its name, kind and allowed values; conversion between text and a typed value.

Values are text in files, in the environment and on the wire, and typed in the code: `parse` reads them as
Kafka does, `format_value` writes them as DescribeConfigs shows them. The allowed values are written as a few
characters, parsed only when a value is checked, so that a table of hundreds of settings is cheap to import:

    -             anything of the kind        {a,b}    one of these         ~{a,b}   the same in any case
    0..   1..9    at least 0; from 1 to 9     [*]      a list of texts      [+]      ... and at least one
    1..9|-1       ... or -1                   [a,b]    elements of these    [+a,b]   ... and at least one
    filled        not the empty string        pairs    `*`, or partition:broker, ...
    voters        id@host:port, ...           servers  host:port, ...
    counts        host:count, ...
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from barnabas.core.errors import BarnabasError, wire_error

Value = bool | int | float | str | tuple[str, ...] | None


class InvalidSetting(BarnabasError):
    """A setting that does not exist, or a value that is not allowed; the message names the allowed ones."""

    wire = wire_error("INVALID_CONFIG")


class InvalidAlteration(InvalidSetting):
    """An alteration that is refused; Kafka answers it as an invalid request rather than an invalid config."""

    wire = wire_error("INVALID_REQUEST")


class Kind(IntEnum):
    """The type of a setting, numbered as in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(IntEnum):
    """How a broker's setting can be changed while the broker runs."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


class Setting(NamedTuple):
    """The definition of one name; `default` is text, None if Kafka's default is null."""

    name: str
    kind: Kind
    default: str | None
    check: str
    update: Update = Update.READ_ONLY
    has_effect: bool = True
    is_internal: bool = False
    is_required: bool = False

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is never shown; values of unknown names are not shown either."""
        return self.kind in (Kind.PASSWORD, Kind.UNKNOWN)

    def parse(self, text: str) -> Value:
        """The checked value of a text; InvalidSetting if it is not valid."""
        value = _READERS[self.kind](self, text.strip())
        if self.check != "-":
            _check(self, value)
        return value

    def normalised(self, text: str) -> str:
        """A text as DescribeConfigs shows it: without blanks, booleans in lower case. An invalid text is
        shown as it is stored."""
        try:
            return format_value(self.parse(text)) or ""
        except InvalidSetting:
            return text

    def default_value(self) -> Value:
        """The typed default; Kafka's defaults are within their own ranges, so this never fails."""
        return None if self.default is None else _READERS[self.kind](self, self.default)


def _read_boolean(setting: Setting, text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise _refusal(setting, text, "Expected value to be either true or false")
    return lowered == "true"


_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}


def _read_whole(setting: Setting, text: str) -> int:
    bound = 1 << (_BITS[setting.kind] - 1)
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or len(digits) > 30 or not -bound <= int(text) < bound:
        raise _refusal(setting, text, f"Not a number of type {setting.kind.name}")
    return int(text)


def _read_double(setting: Setting, text: str) -> float:
    try:
        if "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        raise _refusal(setting, text, "Not a number of type DOUBLE") from None


def _read_list(setting: Setting, text: str) -> tuple[str, ...]:
    parts = [part.strip() for part in text.split(",")] if text else []
    # duplicates count once, as in Kafka 4
    return tuple(dict.fromkeys(parts) if setting.check.startswith("[") else parts)


def _read_text(setting: Setting, text: str) -> str:
    return text


_READERS: dict[Kind, Callable[[Setting, str], Value]] = {
    Kind.UNKNOWN: _read_text,
    Kind.BOOLEAN: _read_boolean,
    Kind.STRING: _read_text,
    Kind.INT: _read_whole,
    Kind.SHORT: _read_whole,
    Kind.LONG: _read_whole,
    Kind.DOUBLE: _read_double,
    Kind.LIST: _read_list,
    Kind.CLASS: _read_text,
    Kind.PASSWORD: _read_text,
}


def _check(setting: Setting, value: Value) -> None:
    check = setting.check
    if isinstance(value, tuple):
        if not _list_fits(check, value):
            raise _list_refusal(setting, value)
    elif isinstance(value, str):
        if not _text_fits(check, value):
            raise _refusal(setting, value, _text_reason(check))
    else:
        assert isinstance(value, (int, float))
        if not _number_fits(check, value):
            raise _refusal(setting, format_value(value), _number_reason(check, value))


def _number_fits(check: str, value: float) -> bool:
    bounds, _, extra = check.partition("|")
    low, _, high = bounds.partition("..")
    if extra and value == float(extra):
        return True
    return float(low) <= value and (not high or value <= float(high))


def _text_fits(check: str, value: str) -> bool:
    if check == "filled":
        return value != ""
    if check == "counts":
        return all(_is_count(part) for part in value.split(",") if part.strip())
    options = _options(check)
    return value.upper() in map(str.upper, options) if check.startswith("~") else value in options


def _list_fits(check: str, value: tuple[str, ...]) -> bool:
    if check == "pairs":
        return value in (("*",), ("",)) or all(_is_pair(part) for part in value)
    if check == "voters":
        return all(_is_voter(part) for part in value)
    if check == "servers":
        return all(_is_endpoint(part) for part in value)
    options = _options(check)
    if (not value and check.startswith("[+")) or "" in value:
        return False
    return not options or all(part in options for part in value)


def _options(check: str) -> list[str]:
    inside = check.lstrip("~")[1:-1].lstrip("+*")
    return inside.split(",") if inside else []


def _is_pair(text: str) -> bool:
    partition, _, broker = text.partition(":")
    return partition.isdecimal() and broker.isdecimal()


def _is_count(text: str) -> bool:
    host, _, count = text.rpartition(":")
    return host.strip() != "" and count.strip().removeprefix("-").isdecimal()


def _is_voter(text: str) -> bool:
    node_id, _, endpoint = text.partition("@")
    return node_id.isdecimal() and _is_endpoint(endpoint)


def _is_endpoint(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return host != "" and port.isdecimal() and int(port) <= 65535


_IN_WORDS = {
    "filled": "anything but the empty string",
    "pairs": "* or a list of partition:broker",
    "voters": "a list of id@host:port",
    "counts": "a list of host:count",
    "servers": "a list of host:port",
    "[*]": "a list without empty elements",
    "[+]": "a list of at least one element, none of them empty",
}


def allowed_values(check: str) -> str:
    """The allowed values in words."""
    if check in _IN_WORDS:
        return _IN_WORDS[check]
    if check[0] == "[":
        return f"a list of {', '.join(_options(check))}{', at least one' * (check[1] == '+')}"
    if check[0] in "{~":
        return f"one of {', '.join(_options(check))}"
    bounds, _, extra = check.partition("|")
    low, _, high = bounds.partition("..")
    return (f"from {low} to {high}" if high else f"at least {low}") + (f", or {extra}" if extra else "")


# Reasons of a refusal are in Kafka's words: its tools show them, and users search for them.


def _number_reason(check: str, value: float) -> str:
    bounds, _, extra = check.partition("|")
    low, _, high = bounds.partition("..")
    if extra:
        return f"Value must be between {low} and {high} or equal to {extra}"
    return f"Value must be at least {low}" if value < float(low) else f"Value must be no more than {high}"


def _text_reason(check: str) -> str:
    if check == "filled":
        return "String must be non-empty"
    if check == "counts":
        return f"it must be {allowed_values(check)}"
    in_any_case = " (case insensitive)" * check.startswith("~")
    return f"String must be one of{in_any_case}: {', '.join(_options(check))}"


def _list_refusal(setting: Setting, value: tuple[str, ...]) -> InvalidSetting:
    name, check = setting.name, setting.check
    if check == "pairs":
        form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        reason = f"{name} must be the literal '*' or a list of replicas in the following format: {form}"
        return _refusal(setting, f"[{', '.join(value)}]", reason)
    if not value:
        valid = f"[{', '.join(options)}]" if (options := _options(check)) else "any non-empty value"
        return InvalidSetting(f"Configuration '{name}' must not be empty. Valid values include: {valid}")
    if "" in value and check[0] == "[":
        return InvalidSetting(f"Configuration '{name}' values must not be empty.")
    if check[0] != "[":
        return _refusal(setting, format_value(value), f"it must be {allowed_values(check)}")
    options = _options(check)
    other = next(part for part in value if part not in options)
    return _refusal(setting, other, f"String must be one of: {', '.join(options)}")


def _refusal(setting: Setting, text: str | None, reason: str) -> InvalidSetting:
    shown = "[hidden]" if setting.is_sensitive else text
    return InvalidSetting(f"Invalid value {shown} for configuration {setting.name}: {reason}")


def format_value(value: Value) -> str | None:
    """A value as DescribeConfigs shows it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return _java_double(value) if isinstance(value, float) else str(value)


def _java_double(value: float) -> str:
    """A double as Java writes it: with an exponent from 10^7 up and below 10^-3."""
    if value == 0 or 1e-3 <= abs(value) < 1e7 or value != value or abs(value) == float("inf"):
        return repr(value).replace("inf", "Infinity").replace("nan", "NaN")
    from decimal import Decimal  # rarely needed, and slow to import

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"
