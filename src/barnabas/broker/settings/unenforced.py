"""Security records in the metadata that are not enforced here: ACLs, SCRAM credentials, delegation tokens.

A cluster with such records relies on them, so a node does not start on a directory that has any, unless it is
configured to go on without (`barnabas.allow.unenforced.security`). Then every start warns, and the records
stay in the metadata for a later version, or another node, that enforces them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.metadata.image import ClusterImage

logger = logging.getLogger("barnabas.node")

ALLOW = "barnabas.allow.unenforced.security"

_KINDS = {
    "acl": ("access rules (ACLs)", "kafka-acls.sh --remove"),
    "scram": ("SCRAM credentials", "kafka-configs.sh --alter --entity-type users --delete-config"),
    "token": ("delegation tokens", "kafka-delegation-tokens.sh --expire"),
}


class UnenforcedSecurity(BarnabasError):
    """The metadata has security records that would not be enforced."""

    wire = wire_error("SECURITY_DISABLED")


def refuse_unenforced(image: ClusterImage, where: str, *, allowed: bool) -> None:
    """Raise UnenforcedSecurity if the metadata of `where` has such records; only warn if that is allowed."""
    found = list(_found(image))
    if not found:
        return
    told = f"the metadata of {where} holds {', '.join(told for told, _ in found)}"
    if allowed:
        logger.warning(
            "%s: they are kept and NOT enforced (%s=true): whoever reaches this node may do everything",
            told,
            ALLOW,
        )
        return
    tools = "; ".join(tool for _, tool in found)
    raise UnenforcedSecurity(
        f"{told}, which this version cannot enforce, so that whoever reaches the node "
        f"could do what they forbid. Remove them with Apache Kafka ({tools}), or start with {ALLOW}=true "
        "to go on without: they are kept as they are"
    )


def _found(image: ClusterImage) -> Iterator[tuple[str, str]]:
    counts = dict.fromkeys(_KINDS, 0)
    for kind, *_ in image.kept:
        if kind in counts:
            counts[kind] += 1
    return ((f"{counts[kind]} {name}", tool) for kind, (name, tool) in _KINDS.items() if counts[kind])
