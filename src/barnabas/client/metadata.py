"""What the client knows about a cluster: brokers, topics, and who leads each partition. Pure.

Answers may come from brokers that are behind. So a partition's leader epoch never goes back as long as the
topic is the same (by its id): an answer with an older epoch leaves the known leader in place. A topic that an
answer calls unknown keeps its epochs, too; it only has no leaders until it is seen again. Brokers without
epochs (before 2.1) or ids (before 2.8) are believed as they come.
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
    """A partition, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Leader(NamedTuple):
    """Who leads a partition, and since which epoch."""

    node_id: int
    epoch: int


class Topic:
    """A topic as far as it is known; `error` says why it cannot be used now."""

    __slots__ = ("error", "leaders", "name", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.leaders: dict[int, Leader] = {}
        self.error: WireError | None = None


class Metadata:
    """Built up by `update`, answer by answer."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = NO_NODE
        self.brokers: dict[int, Address] = {}
        self.topics: dict[str, Topic] = {}
        self._names: dict[bytes, str] = {}

    def update(self, response: MetadataResponse) -> None:
        """Take over what a broker answered, as far as it is not older than what is known."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        for answer in response.topics:
            if answer.name is not None:
                self._update_topic(answer.name, answer)

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Who leads a partition; None where that is not known, or nobody does."""
        known = self.topics.get(topic)
        if known is None or known.error is not None:
            return None
        leader = known.leaders.get(partition)
        return leader if leader is not None and leader.node_id in self.brokers else None

    def has_all_leaders(self, topic: Topic) -> bool:
        """Whether every partition of a topic can be reached."""
        return topic.error is None and all(
            leader.node_id in self.brokers for leader in topic.leaders.values()
        )

    def learn_leader(self, topic: str, partition: int, leader: Leader, endpoint: Address | None) -> bool:
        """Take over what a broker said in passing (KIP-951); whether it was news that can be used."""
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
        """The id of a topic; zeros where it has none, or none is known."""
        known = self.topics.get(topic)
        return NO_UUID if known is None else known.topic_id

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic of that id."""
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
