"""Common parts of Kafka's quorum messages: keys of replicas, addresses, the only partition.

Listeners are in Kafka's normal form: names in capitals, first the controller listener that this node itself
uses, since the core reaches a node at its first endpoint, then the others by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.protocol.messages.quorum_nodes import LeaderNode, Listener
from barnabas.protocol.schema import Message
from barnabas.raft import messages as raft
from barnabas.raft.election import NO_NODE, VoterKey
from barnabas.raft.voters import Endpoint, Endpoints

PARTITION = 0
NOTHING_KNOWN = raft.Known(-1)
INCONSISTENT_CLUSTER_ID = wire_error("INCONSISTENT_CLUSTER_ID").code


class UnsupportedVersion(BarnabasError):
    """The version that both nodes support has no field for a value that must be sent."""

    wire = wire_error("UNSUPPORTED_VERSION")


class Unanswered(BarnabasError):
    """A response with a top-level error: the request was not understood, or not for that node."""

    def __init__(self, text: str, error: int = raft.NONE) -> None:
        super().__init__(text)
        self.error = error


class Asked(NamedTuple):
    """How a request arrived; the response depends on it."""

    version: int
    listener: str


class Asking(NamedTuple):
    """An API on the sending side: its messages, the first version for the quorum, and the mapping."""

    request: type[Message]
    response: type[Message]
    first: int
    to_request: Callable[[Any, str, int], Message]
    from_response: Callable[[Any, Any, str], raft.Response]

    @property
    def last(self) -> int:
        return self.request.__versions__[1]


class Answering(NamedTuple):
    """An API on the answering side; `refuse` gives the response to a request that is not for this quorum."""

    from_request: Callable[[Any, str], raft.Request]
    refuse: Callable[[Any, str, raft.Known, Asked], Message | None]
    to_response: Callable[[Any, Asked], Message]


# --- replicas


def voter_key(node_id: int, directory_id: bytes) -> VoterKey:
    return VoterKey(node_id, UUID(bytes=bytes(directory_id)))


def asked_voter(node_id: int, directory_id: bytes) -> VoterKey | None:
    """The voter that a request is meant for; None if it names none."""
    return None if node_id < 0 else voter_key(node_id, directory_id)


# --- addresses


def ordered(endpoints: Iterable[Endpoint], listener: str) -> Endpoints:
    """Endpoints in normal form, for a node that reaches others at that listener."""
    named = {each.listener.upper(): each for each in endpoints}
    names = sorted(named, key=lambda name: (name != listener.upper(), name))
    return tuple(named[name]._replace(listener=name) for name in names)


def endpoints_of(listeners: Iterable[Any], listener: str) -> Endpoints:
    """The endpoints in a request; none if the node could not be reached at that listener."""
    found = ordered((Endpoint(each.name, each.host, each.port) for each in listeners), listener)
    return found if found and found[0].listener == listener.upper() else ()


def listeners_of(endpoints: Endpoints) -> list[Listener]:
    return [Listener(name=each.listener, host=each.host, port=each.port) for each in endpoints]


def leader_endpoint(known: raft.Known, listener: str) -> Endpoint | None:
    """The leader's address for a sender at that listener."""
    if known.leader_id == NO_NODE:
        return None
    return next((each for each in known.endpoints if each.listener.upper() == listener.upper()), None)


def leader_nodes(known: raft.Known, listener: str) -> list[LeaderNode]:
    endpoint = leader_endpoint(known, listener)
    if endpoint is None:
        return []
    return [LeaderNode(node_id=known.leader_id, host=endpoint.host, port=endpoint.port)]


def known_by(leader_id: int, epoch: int, nodes: Iterable[Any], listener: str) -> raft.Known:
    """The leader in a response, with its address if that is among `nodes`."""
    if leader_id < 0:
        return raft.Known(epoch)
    found = [Endpoint(listener, each.host, each.port) for each in nodes if each.node_id == leader_id]
    return raft.Known(epoch, leader_id, tuple(found))


# --- the cluster and the partition


def is_other_cluster(asked: str | None, cluster_id: str) -> bool:
    """Whether a request is for another cluster; one without a cluster id is for any."""
    return asked is not None and asked != cluster_id


def sole_partition(topics: Sequence[Any]) -> Any:
    """The entry for the quorum's partition; None if the message has anything else."""
    if len(topics) != 1 or topics[0].topic_name != CLUSTER_METADATA or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    return partition if partition.partition_index == PARTITION else None


def answered_partition(message: Any) -> Any:
    """The entry for the quorum's partition, in a response that may have a top-level error."""
    require_no_error(message)
    partition = sole_partition(message.topics)
    if partition is None:
        raise Unanswered(f"{type(message).__name__} tells of another partition")
    return partition


def require_no_error(message: Any) -> None:
    error = message.error_code
    if error != raft.NONE:
        raise Unanswered(f"{type(message).__name__} with error {error}", error)
