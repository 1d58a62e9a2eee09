"""Elections that the active controller begins by itself: preferred leaders, and partitions without a leader.

The preferred replica of a partition is the first of its replicas. When its broker was away, another replica
leads. Once the preferred one is in sync again, it leads again, so that brokers share the load as the topics
were placed (auto.leader.rebalance.enable).

A partition without a leader gets one as soon as a change of the brokers allows it. Here it also gets one when
its topic has been given unclean.leader.election.enable since.

A decision is about a bounded number of partitions, which were found in an earlier image and are looked at
once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.controller.decisions import Decision
from barnabas.controller.elections import ElectionDefaults, elect, for_leaderless
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import TopicImage
from barnabas.metadata.records import NO_LEADER
from barnabas.protocol.schema import Message, Uuid

MAX_ELECTIONS = 1000  # of one decision

_Key = tuple[Uuid, int]  # topic id and partition


def not_preferred(image: ClusterImage, topic: TopicImage) -> Iterator[_Key]:
    """The partitions of a topic whose preferred replica does not lead, and could."""
    for index, partition in enumerate(topic.partitions):
        first = partition.replicas[0]
        if partition.leader != first and first in partition.isr:
            broker = image.brokers.get(first)
            if broker is not None and broker.is_active:
                yield topic.id, index


def prefer(image: ClusterImage, found: Iterable[_Key], defaults: ElectionDefaults) -> Decision[int]:
    """Have the preferred replicas of these partitions lead, where they may; the response counts them."""
    records: list[Message] = []
    for topic_id, index in found:
        topic = image.topic_by_id(topic_id)
        partition = None if topic is None else topic.partition(index)
        if topic is None or partition is None or partition.leader == partition.replicas[0]:
            continue
        change = elect(image, topic, index, defaults, is_unclean=False)
        if change is not None and change.leader == partition.replicas[0]:
            records.append(change)
    return Decision(records, len(records))


def lead_leaderless(image: ClusterImage, defaults: ElectionDefaults) -> Decision[int]:
    """Give partitions without a leader one, where any replica may lead; the response counts them."""
    records: list[Message] = []
    for change in for_leaderless(image, defaults):
        if change.leader >= 0:
            records.append(change)
            if len(records) == MAX_ELECTIONS:
                break
    return Decision(records, len(records))


def has_leaderless(image: ClusterImage) -> bool:
    """Whether any partition is without a leader."""
    return image.leads_any(NO_LEADER)
