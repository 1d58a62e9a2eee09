"""Parses option values: flags, numbers, durations, JSON. Pure.

Errors are OptionErrors that name the option. Names are case-insensitive, as everywhere in Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from barnabas.client.cluster import parse_bootstrap

BOOTSTRAP = "kafka.bootstrap.servers"
MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1

# as Spark writes durations; a bare number is in milliseconds
_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionError(ValueError):
    """An option of a read or a write that is missing, unknown, or invalid."""


class Getter:
    """Options by name; error messages contain the name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def flag(self, name: str, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise OptionError(f"{name}={text!r}: must be true or false")
        return text == "true"

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        text = (self.text(name) or allowed[0]).lower()
        if text not in allowed:
            raise OptionError(f"{name}={text!r}: must be one of {', '.join(allowed)}")
        return text

    def number(self, name: str, least: int = 1) -> int | None:
        text = self.text(name)
        return None if text is None else number(name, text, least=least)

    def duration_ms(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.strip().lower())
        if found is None or found[2] not in _UNITS_MS:
            raise OptionError(f"{name}={text!r}: write a length of time such as 500ms, 30s, 15m or 1h")
        return int(found[1]) * _UNITS_MS[found[2]]


def number(name: str, text: str, least: int = 0, largest: int = MAX_INT64) -> int:
    """Parse a whole number."""
    if not re.fullmatch(r"[0-9]{1,19}", text.strip()) or not least <= int(text) <= largest:
        raise OptionError(f"{name}={text!r}: must be a whole number from {least} to {largest}")
    return int(text)


def bootstrap(text: str) -> str:
    """Check the addresses of brokers."""
    if not text:
        raise OptionError(f"{BOOTSTRAP} is missing: the addresses of brokers, as host:port,host:port")
    try:
        parse_bootstrap(text)
    except ValueError as error:
        raise OptionError(f"{BOOTSTRAP}: {error}") from None
    return text


def json_object(name: str, text: str, example: str, is_good: Callable[[Any], bool]) -> dict[str, Any]:
    """Parse a JSON object, and check its values."""
    try:
        parsed = json.loads(text, object_pairs_hook=partial(_once, name))
    except (ValueError, RecursionError) as error:
        if isinstance(error, OptionError):
            raise
        parsed = None
    if not isinstance(parsed, dict) or not all(is_good(each) for each in parsed.values()):
        raise OptionError(f"{name}={text!r}: write JSON such as {example}")
    return parsed


def _once(name: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object with unique names: json would silently keep the last of two."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise OptionError(f"{name}: {key} is named twice")
        found[key] = value
    return found
