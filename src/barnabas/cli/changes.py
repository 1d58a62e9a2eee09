"""Changes of settings, as `barnabas topic alter` and `barnabas config set` make and tell them.

Brokers forget a setting that they do not know without a word, and Kafka takes any name as a broker's: so
names are looked up first. What a broker would not show is not printed here, either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.cli.connecting import Session
from barnabas.cli.failures import unknown_name
from barnabas.client.admin import (
    ALL_BROKERS,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    ResourceType,
)

SIGNS = {"=": ConfigOperation.SET, "+=": ConfigOperation.APPEND, "-=": ConfigOperation.SUBTRACT}
KINDS = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.BROKER_LOGGER: "loggers",
    ResourceType.CLIENT_METRICS: "client metrics",
    ResourceType.GROUP: "group",
}
HIDDEN = "(hidden)"
_OWN = {ResourceType.TOPIC: ConfigSource.TOPIC, ResourceType.GROUP: ConfigSource.GROUP}
_LISTENER = "listener.name."  # settings of one listener bear its name, so nobody can list them all


class Target(NamedTuple):
    """Whose settings."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        if self.is_all_brokers:
            return "all brokers"
        if self.type is ResourceType.BROKER_LOGGER:
            return f"the loggers of broker {self.name}"
        return f"{KINDS[self.type]} {self.name}"

    @property
    def is_all_brokers(self) -> bool:
        return self.type is ResourceType.BROKER and self.name == ALL_BROKERS

    @property
    def list_command(self) -> str:
        """What shows all settings there are."""
        option = "--all-brokers" if self.is_all_brokers else f"--{KINDS[self.type]} {self.name}"
        return f"barnabas config describe {option} --all"


async def texts(session: Session, target: Target, changes: Sequence[ConfigChange]) -> list[str]:
    """Changes, for people; without the values that a broker keeps to itself."""
    shown: Iterable[str] = [change.name for change in changes]
    if target.type is ResourceType.BROKER:
        entries = await session.admin.describe_configs(*await _described(session, target), shown)
        shown = [name for name, entry in entries.items() if not entry.is_sensitive]
    return [_text(change, change.value if change.name in shown else HIDDEN) for change in changes]


def _text(change: ConfigChange, value: str | None) -> str:
    if change.operation is ConfigOperation.DELETE:
        return f"{change.name} as by default"
    sign = next(sign for sign, operation in SIGNS.items() if operation is change.operation)
    return f"{change.name}{sign}{value}"


async def check_names(session: Session, target: Target, names: Iterable[str]) -> None:
    """Fail for a setting that does not exist, with the nearest that do."""
    wanted = [name for name in names if not name.startswith(_LISTENER)]
    if not wanted:
        return
    described = await _described(session, target)
    known = await session.admin.describe_configs(*described)
    for name in wanted:
        if name not in known:
            raise unknown_name("setting", name, known, described.list_command)


async def _described(session: Session, target: Target) -> Target:
    """Who tells of every setting that a target may have: for all brokers, any one of them."""
    if not target.is_all_brokers:
        return target
    some_broker = (await session.admin.describe_cluster()).brokers[0]
    return Target(ResourceType.BROKER, str(some_broker.node_id))


async def alter(session: Session, target: Target, changes: Sequence[ConfigChange], *, is_dry: bool) -> None:
    """Change settings, and wait until brokers show it."""
    await session.admin.alter_configs(*target, changes, validate_only=is_dry)
    if is_dry or target.type is ResourceType.BROKER_LOGGER:  # a broker's own, changed at once
        return
    of_brokers = ConfigSource.ALL_BROKERS if target.is_all_brokers else ConfigSource.BROKER
    own = _OWN.get(target.type, of_brokers)

    async def is_shown() -> bool:
        entries = await session.admin.describe_configs(*target, [change.name for change in changes])
        return all(_shows(entries.get(change.name), change, own) for change in changes)

    await session.settled(is_shown)


def _shows(entry: ConfigEntry | None, change: ConfigChange, own: ConfigSource) -> bool:
    """Whether a change can be seen, as far as that can be said."""
    if change.operation is ConfigOperation.DELETE:
        return entry is None or entry.source is not own
    if entry is None or entry.source is not own:
        return False
    has, wanted = _parts(entry.value), _parts(change.value)
    if change.operation is ConfigOperation.APPEND:
        return all(part in has for part in wanted)
    if change.operation is ConfigOperation.SUBTRACT:
        return not any(part in has for part in wanted)
    return entry.is_sensitive or has == wanted


def _parts(value: str | None) -> list[str | float]:
    """A value as brokers understand it: `1` and `1.0`, `TRUE` and `true`, `a,a` and `a` are the same."""
    return list(dict.fromkeys(map(_part, (value or "").split(","))))


def _part(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text.strip().lower()
