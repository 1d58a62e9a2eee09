"""A broker's settings as an immutable object: the value of every name, and its source.

Static settings are given at the start. Dynamic ones override them, this broker's before those of all brokers;
`with_dynamic` gives the object for a new set of them. Text is parsed when a value is first read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.definition import Kind, Setting, Update, Value
from barnabas.core.settings.own import OWN


class Source(IntEnum):
    """The source of a value, numbered as in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Given(NamedTuple):
    """A value as text, and where it was given: `--set`, `KAFKA_NODE_ID`, a file, or nowhere (built in)."""

    text: str
    origin: str
    is_built_in: bool = False


def base_name(name: str) -> str:
    """The setting behind one of a listener (`listener.name.<l>.<setting>`); any other name unchanged."""
    if not name.startswith("listener.name."):
        return name
    rest = name.removeprefix("listener.name.").partition(".")[2]
    inner = rest.partition(".")[2]  # of one mechanism: listener.name.<l>.<mechanism>.sasl.jaas.config
    return inner if rest not in BROKER and inner in BROKER else rest


def setting_of(name: str) -> Setting | None:
    """The definition of a setting, also of a listener's."""
    known = BROKER.get(name) or OWN.get(name)
    if known is None and (base := BROKER.get(base_name(name))) is not None:
        known = base._replace(name=name, update=Update.READ_ONLY)
    return known


class BrokerSettings:
    """Every broker setting's value. Immutable; a value is parsed when it is first read."""

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
        """These settings with other dynamic ones: of this broker, and of all brokers."""
        return BrokerSettings(self.static, dynamic=broker, dynamic_default=default, warnings=self.warnings)

    def get(self, name: str) -> Value:
        """The typed value; KeyError if there is no such setting."""
        try:
            return self._values[name]
        except KeyError:
            setting = setting_of(name) or Setting(name, Kind.UNKNOWN, None, "-")
            text = self.text(name)
            value = setting.default_value() if text is None else setting.parse(text)
            self._values[name] = value
            return value

    def text(self, name: str) -> str | None:
        """The text of the value; None if the default applies."""
        source = self.source(name)
        if source is Source.DYNAMIC_BROKER:
            return self.dynamic[name]
        if source is Source.DYNAMIC_DEFAULT_BROKER:
            return self.dynamic_default[name]
        return self.static[name].text if source is Source.STATIC_BROKER else None

    def source(self, name: str) -> Source:
        """The source of the value; KeyError if there is no such setting."""
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
        """Whether it was set, as opposed to built in or Kafka's default."""
        given = self.static.get(name)
        is_static = given is not None and not given.is_built_in
        return is_static or name in self.dynamic or name in self.dynamic_default

    def integer(self, name: str) -> int:
        """The value of an int, short or long that is never null."""
        value = self.get(name)
        assert isinstance(value, int), name
        return value

    def optional_integer(self, name: str) -> int | None:
        """The value of an int, short or long, None if it is null."""
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
        """The value of a string, class or password, None if it is null."""
        value = self.get(name)
        assert value is None or isinstance(value, str), name
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        """The elements of a list; empty if it is null."""
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
        """`log.dirs`, or `log.dir` if only that was set."""
        if self.is_set("log.dir") and not self.is_set("log.dirs"):
            return self.strings("log.dir")
        return self.strings("log.dirs") or self.strings("log.dir")

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The settings that were set and have no effect here (thread pools and such)."""
        return tuple(name for name in self.static if name in BROKER and not BROKER[name].has_effect)
