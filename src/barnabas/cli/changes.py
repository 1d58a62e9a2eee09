"""Changes of settings, as `barnabas topic alter` and `barnabas config set` make and tell them."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.cli.connecting import Session
from barnabas.client.admin import (
    ALL_BROKERS,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    ResourceType,
)

SIGNS = {"=": ConfigOperation.SET, "+=": ConfigOperation.APPEND, "-=": ConfigOperation.SUBTRACT}
_OWN = {ResourceType.TOPIC: ConfigSource.TOPIC, ResourceType.GROUP: ConfigSource.GROUP}


def change_text(change: ConfigChange) -> str:
    """A change, for people."""
    if change.operation is ConfigOperation.DELETE:
        return f"{change.name} as by default"
    sign = next(sign for sign, operation in SIGNS.items() if operation is change.operation)
    return f"{change.name}{sign}{change.value}"


async def alter(
    session: Session, kind: ResourceType, name: str, changes: Sequence[ConfigChange], *, is_dry: bool
) -> None:
    """Change settings, and wait until brokers show it."""
    await session.admin.alter_configs(kind, name, changes, validate_only=is_dry)
    if is_dry or kind is ResourceType.BROKER_LOGGER:  # a broker's own, changed at once
        return
    own = _OWN.get(kind, ConfigSource.ALL_BROKERS if name == ALL_BROKERS else ConfigSource.BROKER)

    async def is_shown() -> bool:
        entries = await session.admin.describe_configs(kind, name, [change.name for change in changes])
        return all(_shows(entries.get(change.name), change, own) for change in changes)

    await session.settled(is_shown)


def _shows(entry: ConfigEntry | None, change: ConfigChange, own: ConfigSource) -> bool:
    """Whether a change can be seen, as far as that can be said."""
    if change.operation is ConfigOperation.DELETE:
        return entry is None or entry.source is not own
    if entry is None or entry.source is not own:
        return False
    has = (entry.value or "").split(",")
    wanted = [part.strip() for part in (change.value or "").split(",")]
    if change.operation is ConfigOperation.APPEND:
        return all(part in has for part in wanted)
    if change.operation is ConfigOperation.SUBTRACT:
        return not any(part in has for part in wanted)
    return entry.is_sensitive or [part.strip().lower() for part in has] == [part.lower() for part in wanted]
