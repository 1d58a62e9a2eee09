"""The effect of metadata.version on records: a cluster of an older version gets older record versions.

So a directory that an older Kafka finalised stays readable for it. All levels that Kafka 4.3 knows are here,
with their releases; `changed` marks those that added fields or records which an older level does not have, so
that a downgrade below one of them would lose metadata.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from barnabas.protocol.schema import Message

OLDEST_METADATA_VERSION = 7
LATEST_METADATA_VERSION = 30
TRANSACTIONS_SINCE = 13
CONTROLLERS_SINCE = 15
DIRECTORIES_SINCE = 17
ELR_SINCE = 23
CORDONED_SINCE = 30

# for types with several versions: (first metadata.version, record version), the newest first
_RECORD_VERSIONS: dict[type[Message], tuple[tuple[int, int], ...]] = {
    RegisterBrokerRecord: ((CORDONED_SINCE, 4), (DIRECTORIES_SINCE, 3), (8, 2), (0, 1)),
    PartitionRecord: ((ELR_SINCE, 2), (DIRECTORIES_SINCE, 1), (0, 0)),
    PartitionChangeRecord: ((ELR_SINCE, 2), (DIRECTORIES_SINCE, 1), (0, 0)),
    BrokerRegistrationChangeRecord: ((CORDONED_SINCE, 3), (DIRECTORIES_SINCE, 2), (0, 1)),
}

_RELEASES = (
    *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0"),
    *("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0"),
)
_CHANGED = frozenset(
    {7, 8, 11, TRANSACTIONS_SINCE, 14, CONTROLLERS_SINCE, DIRECTORIES_SINCE, ELR_SINCE, CORDONED_SINCE}
)


class Level(NamedTuple):
    """One level of metadata.version."""

    number: int
    release: str
    changed: bool


def record_version(record: type[Message], metadata_version: int) -> int:
    """The version of a record type in a cluster of that metadata.version."""
    for since, version in _RECORD_VERSIONS.get(record, ()):
        if metadata_version >= since:
            return version
    return record.__versions__[1]


def level(number: int) -> Level | None:
    """A known level of metadata.version; None if it is too old, or too new."""
    if not OLDEST_METADATA_VERSION <= number <= LATEST_METADATA_VERSION:
        return None
    return Level(number, _RELEASES[number - OLDEST_METADATA_VERSION], number in _CHANGED)


def level_of_release(release: str) -> int | None:
    """The metadata.version of a release such as 4.3, 4.3.0 or 4.3-IV0; None if unknown."""
    name = ".".join(release.split(".")[:2])
    found = [at for at, each in enumerate(_RELEASES) if name in (each, each.partition("-")[0])]
    return OLDEST_METADATA_VERSION + found[-1] if found else None


def loses_metadata(old: int, new: int) -> bool:
    """Whether a downgrade from `old` to `new` could lose metadata."""
    return any(new < changed <= old for changed in _CHANGED)
