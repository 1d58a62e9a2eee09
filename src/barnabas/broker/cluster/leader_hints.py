"""Tells a client of the wrong node the partition's leader and its address, beside the error (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from barnabas.core.errors import wire_error
from barnabas.protocol.messages.leaders import LeaderIdAndEpoch, NodeEndpoint

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services

_WRONG_LEADER = (wire_error("NOT_LEADER_OR_FOLLOWER").code, wire_error("FENCED_LEADER_EPOCH").code)


class Answered(Protocol):
    """A partition in a response of Produce or Fetch."""

    error_code: int
    current_leader: LeaderIdAndEpoch | None


def point_to_leaders(
    api: str, failed: Iterable[tuple[str, bytes, int, Answered]], context: RequestContext, services: Services
) -> list[NodeEndpoint]:
    """Set the current leader in each partition that failed because of it; returns the addresses of these
    nodes.

    A partition comes with its topic's name or id, and its index. Each node is named once: Java's clients fail
    over a second mention.
    """
    image = services.image
    endpoints: dict[int, NodeEndpoint] = {}
    codes: list[int] = []
    for name, topic_id, index, answered in failed:
        codes.append(answered.error_code)
        topic = image.topic(name) if name else image.topic_by_id(topic_id)
        partition = None if topic is None else topic.partition(index)
        if partition is None or answered.error_code not in _WRONG_LEADER:
            continue
        leader = partition.leader
        answered.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=partition.leader_epoch)
        broker = image.brokers.get(leader)
        at = None if broker is None else broker.endpoints.get(context.listener)
        if broker is not None and at is not None:
            endpoints[leader] = NodeEndpoint(node_id=leader, host=at.host, port=at.port, rack=broker.rack)
    if codes and services.traffic is not None:
        services.traffic.failed(api, context.api_version, codes)
    return list(endpoints.values())
