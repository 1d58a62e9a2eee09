"""Which names a topic may have.

At most 249 characters, so that a directory's name has room for a partition and a suffix; no "." and "..". A
dot and an underscore are one character in the names of metrics, so names that differ only in them collide.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.controller.decisions import Refused

LONGEST_NAME = 249

_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def check_name(name: str) -> None:
    """Refused where no topic can be called so."""
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > LONGEST_NAME:
        problem = f"the length of '{name}' is longer than the max allowed length {LONGEST_NAME}"
    elif not _ALLOWED.issuperset(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise Refused("INVALID_TOPIC_EXCEPTION", f"Topic name is invalid: {problem}")


class Collisions:
    """The names taken so far, a dot being the same as an underscore."""

    def __init__(self, names: Iterable[str]) -> None:
        self._taken = {self._folded(name): name for name in names if "." in name or "_" in name}

    def check(self, name: str) -> None:
        """Refused where another topic's name is the same but for dots and underscores."""
        other = self._taken.get(self._folded(name))
        if other is not None and other != name:
            raise Refused("INVALID_TOPIC_EXCEPTION", f"Topic '{name}' collides with existing topic: {other}")

    def add(self, name: str) -> None:
        if "." in name or "_" in name:
            self._taken[self._folded(name)] = name

    @staticmethod
    def _folded(name: str) -> str:
        return name.replace(".", "_")
