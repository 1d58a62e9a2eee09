"""The levels of features with which a cluster is formatted, as Kafka's storage tool chooses them.

A release, by its metadata.version, has a level of each feature; other levels can be given. Features that are
kept here but not served are used only if they are given. `kraft.version` belongs to the quorum: 1 if the
voters are in the log, 0 if they are in the settings.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.controller.bootstrap import KRAFT_FEATURE, TRANSACTION_VERSION
from barnabas.controller.elections import ELR_FEATURE
from barnabas.core.errors import BarnabasError
from barnabas.metadata.image import METADATA_VERSION
from barnabas.metadata.versions import (
    ELR_SINCE,
    LATEST_METADATA_VERSION,
    OLDEST_METADATA_VERSION,
    level,
    level_of_release,
)

# all levels, each with the first metadata.version that has it by default
_SERVED: dict[str, dict[int, int]] = {ELR_FEATURE: {1: 26}, TRANSACTION_VERSION: {1: 24, 2: 24}}
_CARRIED: dict[str, dict[int, int]] = {
    "group.version": {1: 22},
    "share.version": {1: 28},
    "streams.version": {1: 29},
}
_KNOWN = {**_SERVED, **_CARRIED}


class InvalidFeature(BarnabasError):
    """A cluster cannot be formatted with that feature."""


def initial_levels(release: str | None, given: Mapping[str, int]) -> dict[str, int]:
    """The levels that a new cluster of a release finalises: those given, and defaults for the others."""
    metadata_version = _metadata_version(release, given.get(METADATA_VERSION))
    levels = {METADATA_VERSION: metadata_version}
    for name, since in _SERVED.items():
        levels[name] = max((each for each, first in since.items() if metadata_version >= first), default=0)
    for name, wanted in given.items():
        if name in (METADATA_VERSION, KRAFT_FEATURE):
            continue
        if name not in _KNOWN:
            known = ", ".join(sorted({METADATA_VERSION, KRAFT_FEATURE, *_KNOWN}))
            raise InvalidFeature(f"there is no feature {name}, only {known}")
        if wanted != 0 and wanted not in _KNOWN[name]:
            raise InvalidFeature(f"{name}={wanted}: the levels of {name} are 0 to {max(_KNOWN[name])}")
        levels[name] = wanted
    if levels[ELR_FEATURE] and metadata_version < ELR_SINCE:
        raise InvalidFeature(
            f"{ELR_FEATURE}={levels[ELR_FEATURE]} needs {METADATA_VERSION} {ELR_SINCE}, "
            f"this is {metadata_version}"
        )
    return {name: each for name, each in levels.items() if each}


def initial_kraft_version(given: int | None, *, is_dynamic: bool) -> int:
    """The kraft.version of a new quorum; the voters of a dynamic one are in the log."""
    right = 1 if is_dynamic else 0
    if given not in (None, right):
        where = "the metadata log" if is_dynamic else "controller.quorum.voters"
        raise InvalidFeature(f"{KRAFT_FEATURE}={given}: the voters stand in {where}: leave it out")
    return right


def _metadata_version(release: str | None, given: int | None) -> int:
    if given is None:
        found = LATEST_METADATA_VERSION if release is None else level_of_release(release)
        if found is None:
            oldest, latest = (level(each) for each in (OLDEST_METADATA_VERSION, LATEST_METADATA_VERSION))
            assert oldest is not None
            assert latest is not None
            raise InvalidFeature(f"{release} is no release from {oldest.release} to {latest.release}")
        return found
    if release is not None:
        raise InvalidFeature(f"a release and {METADATA_VERSION} are two ways to say one thing: give one")
    if level(given) is None:
        raise InvalidFeature(
            f"{METADATA_VERSION}={given}: must be from {OLDEST_METADATA_VERSION} to {LATEST_METADATA_VERSION}"
        )
    return given
