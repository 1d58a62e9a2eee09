"""The valid names of topics.

At most 249 characters, so that a directory's name has room for a partition and a suffix; no "." and "..". In
the names of metrics a dot and an underscore are the same, so names that differ only in them collide.
"""

from __future__ import annotations

from barnabas.controller.decisions import Refused
from barnabas.metadata.image import ClusterImage, folded

LONGEST_NAME = 249

_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def check_name(name: str) -> None:
    """Refused if the name is invalid."""
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
    """The names of existing topics and of those in a request; a dot equals an underscore."""

    def __init__(self, image: ClusterImage) -> None:
        self._taken = image.folded_names
        self._new: dict[str, str] = {}

    def check(self, name: str) -> None:
        """Refused if another topic's name differs only in dots and underscores."""
        key = folded(name)
        other = None if key is None else self._taken.get(key) or self._new.get(key)
        if other is not None and other != name:
            raise Refused("INVALID_TOPIC_EXCEPTION", f"Topic '{name}' collides with existing topic: {other}")

    def add(self, name: str) -> None:
        key = folded(name)
        if key is not None:
            self._new[key] = name
