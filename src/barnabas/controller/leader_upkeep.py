"""Elections that the active controller starts itself: preferred leaders, and partitions without a leader.

The preferred leader of a partition is the first of its replicas. When its broker was away, another replica
leads. Once the preferred one is in sync again, it leads again, so that the load is spread as the topics were
placed (auto.leader.rebalance.enable).

A partition without a leader gets one as soon as a change of the brokers allows it. Here it also gets one when
unclean.leader.election.enable has been set for its topic since.

A decision covers a bounded number of partitions, which were found in an earlier image and are checked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.controller.decisions import Decision
from barnabas.controller.elections import ElectionDefaults, elect, for_leaderless
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import TopicImage
from barnabas.metadata.records import NO_LEADER
from barnabas.protocol.schema import Message, Uuid

MAX_ELECTIONS = 1000  # in one decision

_Key = tuple[Uuid, int]  # topic id and partition


def not_preferred(image: ClusterImage, topic: TopicImage) -> Iterator[_Key]:
    """The partitions of a topic whose preferred leader does not lead, but could."""
    for index, partition in enumerate(topic.partitions):
        first = partition.replicas[0]
        if partition.leader != first and first in partition.isr:
            broker = image.brokers.get(first)
            if broker is not None and broker.is_active:
                yield topic.id, index


def prefer(image: ClusterImage, found: Iterable[_Key], defaults: ElectionDefaults) -> Decision[int]:
    """Elect the preferred leaders of these partitions, where possible; the response is their number."""
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
    """Elect leaders for partitions without one, where possible; the response is their number."""
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
