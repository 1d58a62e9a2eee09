"""The checks of registrations of brokers and controllers.

A node has a range of supported levels for each feature. Its registration is accepted only if the cluster's
level of every feature is in the range; a feature that it does not name counts as 0-0.

A broker may take the id of another incarnation that is gone (`liveness`). While that one has a session it may
be alive, as in Kafka. But it is gone if its heartbeat connection is closed and a connection to its listener
is refused, or if the new incarnation has that listener: it has bound the address before it registers.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from barnabas.controller.contacts import OWN_PROCESS, Contact
from barnabas.controller.decisions import Refused
from barnabas.metadata.image import METADATA_VERSION
from barnabas.metadata.parts import BrokerImage

_SECURITY_PROTOCOLS = range(4)


class RegisteredFeature(Protocol):
    """A feature in a request."""

    name: str
    min_supported_version: int
    max_supported_version: int


class RegisteredListener(Protocol):
    """A listener in a request."""

    name: str
    host: str
    port: int
    security_protocol: int


class Liveness(enum.Enum):
    """What is known of the incarnation that a new one replaces."""

    GONE = "gone"
    MAY_LIVE = "may live"
    GONE_IF_REFUSED = "gone if its listener refuses a dial"


def dialled_addresses(broker: BrokerImage, inter_broker_listener: str | None) -> list[tuple[str, int]]:
    """The addresses to dial: the broker's inter-broker listener, or all its listeners if it is unknown."""
    endpoints = broker.endpoints
    if inter_broker_listener in endpoints:
        endpoints = {"": endpoints[inter_broker_listener]}
    return [(each.host, each.port) for each in endpoints.values()]


def liveness(
    contact: Contact | None,
    addresses: Sequence[tuple[str, int]],
    listeners: Iterable[RegisteredListener],
    *,
    is_here: bool,
    now: float,
    session_s: float,
) -> Liveness:
    """Whether the incarnation with an id may be alive. `contact` is the last one with it, `addresses` are its
    addresses. `listeners` are those of the new incarnation; `is_here`: it is in the controller's process."""
    if contact is None or contact.is_over(now, session_s):
        return Liveness.GONE
    carrier = contact.carrier
    if carrier is OWN_PROCESS:
        return Liveness.GONE if is_here else Liveness.MAY_LIVE
    if carrier is not None and carrier.is_open:
        return Liveness.MAY_LIVE
    # this process now holds the lock of the directory, which the earlier incarnation of this node held
    if is_here or any((each.host, each.port) in addresses for each in listeners):
        return Liveness.GONE
    return Liveness.GONE_IF_REFUSED


def check_listeners(listeners: Iterable[RegisteredListener]) -> None:
    """Refused if a listener has an unknown protocol; Kafka, too, has no specific error for this."""
    for each in listeners:
        if each.security_protocol not in _SECURITY_PROTOCOLS:
            raise Refused(
                "UNKNOWN_SERVER_ERROR",
                f"Unknown security protocol {each.security_protocol} in listener {each.name}",
            )


def check_features(features: Iterable[RegisteredFeature], levels: Mapping[str, int]) -> None:
    """Refused if a node does not support the cluster's levels."""
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
