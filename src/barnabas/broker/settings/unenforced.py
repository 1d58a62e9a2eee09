"""What the metadata says of who may do what, and is not enforced here: access rules, credentials, tokens.

Whoever wrote them relies on them, so a node does not start on a directory that holds any, unless it is told
to go on without (`barnabas.allow.unenforced.security`). Then every start warns, and the records stay in the
metadata for the day when something enforces them again.
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
    """The metadata holds what was to protect the cluster, and would not."""

    wire = wire_error("SECURITY_DISABLED")


def refuse_unenforced(image: ClusterImage, where: str, *, allowed: bool) -> None:
    """UnenforcedSecurity where the metadata of `where` holds such records; a warning if that is allowed."""
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
