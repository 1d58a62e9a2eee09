"""What a client that asked the wrong node is told beside the error: who leads, and where (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.core.errors import wire_error

if TYPE_CHECKING:
    from barnabas.broker.requests import RequestContext
    from barnabas.broker.services import Services

_WRONG_LEADER = (wire_error("NOT_LEADER_OR_FOLLOWER").code, wire_error("FENCED_LEADER_EPOCH").code)


class LeaderHint(NamedTuple):
    """The leader of a partition as this node knows it; no host where it has no address on that listener."""

    node_id: int
    epoch: int
    host: str
    port: int
    rack: str | None


def leader_hint(
    name: str,
    topic_id: bytes,
    partition: int,
    error_code: int,
    context: RequestContext,
    services: Services,
) -> LeaderHint | None:
    """Who leads the partition, where the error says that the client does not know."""
    if error_code not in _WRONG_LEADER:
        return None
    topic = services.image.topic(name) if name else services.image.topic_by_id(topic_id)
    image = None if topic is None else topic.partitions.get(partition)
    if image is None:
        return None
    broker = services.image.brokers.get(image.leader)
    endpoint = None if broker is None else broker.endpoints.get(context.listener)
    if broker is None or endpoint is None:
        return LeaderHint(image.leader, image.leader_epoch, "", 0, None)
    return LeaderHint(image.leader, image.leader_epoch, endpoint.host, endpoint.port, broker.rack)
