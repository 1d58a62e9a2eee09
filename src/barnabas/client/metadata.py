"""The client's metadata of a cluster: brokers, topics, and partition leaders. Pure.

Responses may come from brokers that are behind. So a partition's leader epoch never goes back while the topic
is the same (by its id): a response with an older epoch does not change the leader. A topic that a response
calls unknown keeps its epochs, too; it only has no leaders until it is known again. Brokers without epochs
(before 2.1) or ids (before 2.8) are always believed.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.client.errors import wire_error_of
from barnabas.core.errors import WireError
from barnabas.core.network import Address
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.schema import NO_UUID

NO_NODE = -1
NO_EPOCH = -1


class TopicPartition(NamedTuple):
    """A topic's name and a partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Leader(NamedTuple):
    """A partition's leader and its epoch."""

    node_id: int
    epoch: int


class Topic:
    """The metadata of a topic; `error` is the reason if it cannot be used now."""

    __slots__ = ("error", "leaders", "name", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.leaders: dict[int, Leader] = {}
        self.error: WireError | None = None


class Metadata:
    """The metadata, changed by `update` with each response."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = NO_NODE
        self.brokers: dict[int, Address] = {}
        self.topics: dict[str, Topic] = {}
        self._names: dict[bytes, str] = {}

    def update(self, response: MetadataResponse) -> None:
        """Apply a response, except for parts that are older than the known state."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        for answer in response.topics:
            if answer.name is not None:
                self._update_topic(answer.name, answer)

    def leader(self, topic: str, partition: int) -> Leader | None:
        """A partition's leader; None if it is unknown or there is none."""
        known = self.topics.get(topic)
        if known is None or known.error is not None:
            return None
        leader = known.leaders.get(partition)
        return leader if leader is not None and leader.node_id in self.brokers else None

    def has_all_leaders(self, topic: Topic) -> bool:
        """Whether every partition of a topic has a known leader."""
        return topic.error is None and all(
            leader.node_id in self.brokers for leader in topic.leaders.values()
        )

    def learn_leader(self, topic: str, partition: int, leader: Leader, endpoint: Address | None) -> bool:
        """Apply a leader named in another response (KIP-951); returns whether it was new and can be
        reached."""
        known = self.topics.get(topic)
        if known is None or partition not in known.leaders or leader.node_id == NO_NODE:
            return False
        if endpoint is not None:
            self.brokers[leader.node_id] = endpoint
        if leader.epoch <= known.leaders[partition].epoch or leader.node_id not in self.brokers:
            return False
        known.leaders[partition] = leader
        return True

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic; zeros if it has none, or is unknown."""
        known = self.topics.get(topic)
        return NO_UUID if known is None else known.topic_id

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic with that id."""
        return self._names.get(topic_id)

    def _update_topic(self, name: str, answer: MetadataResponseTopic) -> None:
        error = wire_error_of(answer.error_code) if answer.error_code else None
        topic = self.topics.get(name)
        if topic is None or (answer.topic_id != topic.topic_id and error is None):
            if topic is not None:
                self._names.pop(topic.topic_id, None)
            topic = self.topics[name] = Topic(name, answer.topic_id)
            if answer.topic_id != NO_UUID:
                self._names[answer.topic_id] = name
        topic.error = error
        if error is None or answer.partitions:
            topic.leaders = {p.partition_index: _newer(topic, p) for p in answer.partitions}


def _newer(topic: Topic, answer: MetadataResponsePartition) -> Leader:
    known = topic.leaders.get(answer.partition_index)
    if known is not None and answer.leader_epoch != NO_EPOCH and answer.leader_epoch < known.epoch:
        return known
    return Leader(answer.leader_id, answer.leader_epoch)
