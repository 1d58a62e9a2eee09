"""Values of options, read from the text that Spark hands over: what is wrong is said with the option's name.

Names are case-insensitive, as everywhere in Spark. Pure; knows nothing of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from barnabas.client.cluster import parse_bootstrap

BOOTSTRAP = "kafka.bootstrap.servers"
MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1


class OptionError(ValueError):
    """An option that is missing, unknown, or makes no sense."""


class Getter:
    """Options by name; the message of what is wrong has the name in it."""

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

    def number(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else number(name, text, least=1)


def number(name: str, text: str, least: int = 0, largest: int = MAX_INT64) -> int:
    """The whole number that an option has."""
    if not re.fullmatch(r"[0-9]{1,19}", text.strip()) or not least <= int(text) <= largest:
        raise OptionError(f"{name}={text!r}: must be a whole number from {least} to {largest}")
    return int(text)


def bootstrap(text: str) -> str:
    """The addresses of brokers."""
    if not text:
        raise OptionError(f"{BOOTSTRAP} is missing: the addresses of brokers, as host:port,host:port")
    try:
        parse_bootstrap(text)
    except ValueError as error:
        raise OptionError(f"{BOOTSTRAP}: {error}") from None
    return text
