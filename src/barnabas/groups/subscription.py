"""The subscribed topics in the members' metadata: the consumer protocol, any version.

A version, then the names of topics; fields of newer versions follow. Other bytes belong to another protocol:
then the topics of the whole group are unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_HEAD = struct.Struct(">hi")
_INT16 = struct.Struct(">h")


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All subscribed topics; None if they cannot be determined."""
    found: set[str] = set()
    try:
        for subscription in subscriptions:
            found.update(_topics(subscription))
    except (struct.error, UnicodeDecodeError, IndexError):
        return None
    return frozenset(found)


def _topics(subscription: bytes) -> list[str]:
    version, count = _HEAD.unpack_from(subscription)
    at = _HEAD.size
    if version < 0 or not 0 <= count <= len(subscription):
        raise IndexError("a count beyond what is there")
    names = []
    for _ in range(count):
        (size,) = _INT16.unpack_from(subscription, at)
        at += _INT16.size
        if size < 0 or at + size > len(subscription):
            raise IndexError("a name beyond what is there")
        names.append(subscription[at : at + size].decode())
        at += size
    return names
