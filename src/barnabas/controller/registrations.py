"""What is checked when brokers and controllers register.

A node names the range of levels that it supports of each feature. It is taken in only where the cluster's
level of every feature lies in its range; a feature that it does not name counts as 0-0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from barnabas.controller.decisions import Refused
from barnabas.metadata.image import METADATA_VERSION

_SECURITY_PROTOCOLS = range(4)


class RegisteredFeature(Protocol):
    """A feature, as requests name it."""

    name: str
    min_supported_version: int
    max_supported_version: int


class RegisteredListener(Protocol):
    """A listener, as requests name it."""

    name: str
    security_protocol: int


def check_listeners(listeners: Iterable[RegisteredListener]) -> None:
    """Refused where a listener has a protocol that nobody knows; Kafka, too, has no name for this error."""
    for each in listeners:
        if each.security_protocol not in _SECURITY_PROTOCOLS:
            raise Refused(
                "UNKNOWN_SERVER_ERROR",
                f"Unknown security protocol {each.security_protocol} in listener {each.name}",
            )


def check_features(features: Iterable[RegisteredFeature], levels: Mapping[str, int]) -> None:
    """Refused where a node does not support the levels of the cluster."""
    ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in features}
    for name, (low, high) in ranges.items():
        _check_level(name, levels.get(name, 0), low, high)
    if METADATA_VERSION not in ranges:
        raise Refused("INVALID_REGISTRATION", f"Request features do not contain '{METADATA_VERSION}'")
    for name, level in levels.items():
        if name not in ranges:
            _check_level(name, level, 0, 0)


def _check_level(name: str, level: int, low: int, high: int) -> None:
    if not low <= level <= high:
        raise Refused(
            "UNSUPPORTED_VERSION",
            f"Unable to register because the broker does not support finalized version {level} of {name}. "
            f"The broker wants a version between {low} and {high}, inclusive.",
        )
