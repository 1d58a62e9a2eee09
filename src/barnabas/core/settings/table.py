"""Settings by name, from a table written as text: a row becomes a `Setting` when it is first read."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.core.settings.definition import Kind, Setting, Update

_UPDATES = {"fixed": Update.READ_ONLY, "broker": Update.PER_BROKER, "cluster": Update.CLUSTER_WIDE}
_SPECIAL_DEFAULTS = {"null": None, "required": None, "''": ""}


class Table:
    """`table[name]`, `table.get(name)`, `name in table`, and the names in their order."""

    def __init__(self, rows: str) -> None:
        self._text = rows
        self._rows: dict[str, str] = {}
        self._settings: dict[str, Setting] = {}

    def __getitem__(self, name: str) -> Setting:
        setting = self._settings.get(name)
        if setting is None:
            setting = self._settings[name] = _setting(name, self._by_name()[name])
        return setting

    def __contains__(self, name: str) -> bool:
        return name in self._by_name()

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def get(self, name: str) -> Setting | None:
        """The setting of that name, or None."""
        return self[name] if name in self._by_name() else None

    def _by_name(self) -> dict[str, str]:
        if not self._rows:
            for row in self._text.splitlines():
                name, _, rest = row.partition(" ")
                self._rows[name] = rest
        return self._rows


def _setting(name: str, row: str) -> Setting:
    kind, default, check, *rest = row.split(" ")
    return Setting(
        name,
        Kind[kind.upper()],
        _SPECIAL_DEFAULTS.get(default, default),
        check,
        _UPDATES[rest[0]] if rest else Update.CLUSTER_WIDE,
        has_effect="idle" not in rest,
        is_internal="internal" in rest,
        is_required=default == "required",
    )
