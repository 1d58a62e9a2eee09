"""A broker's settings, as one unchanging answer: the value of every name, and who decided it.

Static settings were given at the start; those altered while running lie above them, this broker's over those
of all brokers, and `with_dynamic` gives the next answer. Text is parsed when a value is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.definition import Kind, Setting, Update, Value
from barnabas.core.settings.own import OWN


class Source(IntEnum):
    """Who decided a value, numbered as in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Given(NamedTuple):
    """A value as text, and where it was written: `--set`, `KAFKA_NODE_ID`, a file, or nowhere (built in)."""

    text: str
    origin: str
    is_built_in: bool = False


def base_name(name: str) -> str:
    """The setting behind that of one listener (`listener.name.<l>.<setting>`); otherwise the name itself."""
    if not name.startswith("listener.name."):
        return name
    rest = name.removeprefix("listener.name.").partition(".")[2]
    inner = rest.partition(".")[2]  # of one mechanism: listener.name.<l>.<mechanism>.sasl.jaas.config
    return inner if rest not in BROKER and inner in BROKER else rest


def setting_of(name: str) -> Setting | None:
    """The definition behind a name, that of a listener included."""
    known = BROKER.get(name) or OWN.get(name)
    if known is None and (base := BROKER.get(base_name(name))) is not None:
        known = base._replace(name=name, update=Update.READ_ONLY)
    return known


class BrokerSettings:
    """Every broker setting's value. Immutable; values are parsed when they are first asked for."""

    def __init__(
        self,
        static: Mapping[str, Given],
        *,
        dynamic: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
        warnings: Iterable[str] = (),
    ) -> None:
        self.static = dict(static)
        self.dynamic = dict(dynamic or {})
        self.dynamic_default = dict(dynamic_default or {})
        self.warnings = tuple(warnings)
        self._values: dict[str, Value] = {}

    def with_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str]) -> BrokerSettings:
        """The same under other altered settings: of this broker, and of all brokers."""
        return BrokerSettings(self.static, dynamic=broker, dynamic_default=default, warnings=self.warnings)

    def get(self, name: str) -> Value:
        """The typed value; KeyError where there is no such setting."""
        try:
            return self._values[name]
        except KeyError:
            setting = setting_of(name) or Setting(name, Kind.UNKNOWN, None, "-")
            text = self.text(name)
            value = setting.default_value() if text is None else setting.parse(text)
            self._values[name] = value
            return value

    def text(self, name: str) -> str | None:
        """The text that decides the value; None where the default does."""
        source = self.source(name)
        if source is Source.DYNAMIC_BROKER:
            return self.dynamic[name]
        if source is Source.DYNAMIC_DEFAULT_BROKER:
            return self.dynamic_default[name]
        return self.static[name].text if source is Source.STATIC_BROKER else None

    def source(self, name: str) -> Source:
        """Who decides the value; KeyError where there is no such setting."""
        if name in self.dynamic:
            return Source.DYNAMIC_BROKER
        if name in self.dynamic_default:
            return Source.DYNAMIC_DEFAULT_BROKER
        if name in self.static:
            return Source.STATIC_BROKER
        if name not in BROKER and name not in OWN:
            raise KeyError(name)
        return Source.DEFAULT

    def is_set(self, name: str) -> bool:
        """Whether somebody set it, as opposed to what is built in or Kafka's default."""
        given = self.static.get(name)
        is_static = given is not None and not given.is_built_in
        return is_static or name in self.dynamic or name in self.dynamic_default

    def integer(self, name: str) -> int:
        """The value of an int, short or long that is never null."""
        value = self.get(name)
        assert isinstance(value, int), name
        return value

    def optional_integer(self, name: str) -> int | None:
        """The value of an int, short or long, None where it is null."""
        return None if self.get(name) is None else self.integer(name)

    def boolean(self, name: str) -> bool:
        """The value of a boolean."""
        value = self.get(name)
        assert isinstance(value, bool), name
        return value

    def double(self, name: str) -> float:
        """The value of a double."""
        value = self.get(name)
        assert isinstance(value, float), name
        return value

    def string(self, name: str) -> str | None:
        """The value of a string, class or password, None where it is null."""
        value = self.get(name)
        assert value is None or isinstance(value, str), name
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        """The elements of a list; none where it is null."""
        value = self.get(name)
        assert value is None or isinstance(value, tuple), name
        return value or ()

    @property
    def node_id(self) -> int:
        return self.integer("node.id")

    @property
    def roles(self) -> tuple[str, ...]:
        return self.strings("process.roles")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """`log.dirs`, or `log.dir` where only that was set."""
        if self.is_set("log.dir") and not self.is_set("log.dirs"):
            return self.strings("log.dir")
        return self.strings("log.dirs") or self.strings("log.dir")

    @property
    def without_effect(self) -> tuple[str, ...]:
        """What was set although it steers nothing here (thread pools and such)."""
        return tuple(name for name in self.static if name in BROKER and not BROKER[name].has_effect)
