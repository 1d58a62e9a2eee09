"""CreatePartitions: more partitions for existing topics.

Every partition of a topic has as many replicas as its first one. New partitions get the next numbers, placed
automatically or by the request; their number cannot be reduced. Topics of a request are decided one by one; a
topic named twice is refused, and so is a request for more than ten thousand partitions altogether.
"""

from __future__ import annotations

from collections import Counter

from barnabas.controller.decisions import Decision, Refused
from barnabas.controller.placement import place
from barnabas.controller.topics import MAX_PARTITIONS_PER_REQUEST, check_assignment, new_partition
from barnabas.core.random import Random
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import TopicImage
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas.protocol.schema import Message


def create_partitions(
    image: ClusterImage, request: CreatePartitionsRequest, random: Random
) -> Decision[CreatePartitionsResponse]:
    """The records of every partition that can be added, and a result for each requested topic."""
    counts = Counter(topic.name for topic in request.topics)
    records: list[Message] = []
    results: list[CreatePartitionsTopicResult] = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if counts[topic.name] > 1:
                raise Refused("INVALID_REQUEST", "Duplicate topic name.")
            added = _added(image, topic, random, MAX_PARTITIONS_PER_REQUEST - len(records))
        except Refused as refused:
            results.append(_refused(topic.name, refused))
        else:
            records += added
            results.append(CreatePartitionsTopicResult(name=topic.name, error_code=0, error_message=None))
    response = CreatePartitionsResponse(throttle_time_ms=0, results=results)
    return Decision([] if request.validate_only else records, response)


def _added(image: ClusterImage, asked: CreatePartitionsTopic, random: Random, at_most: int) -> list[Message]:
    topic = image.topic(asked.name)
    if topic is None:
        raise Refused("UNKNOWN_TOPIC_OR_PARTITION", "")
    present = len(topic.partitions)
    additional = _additional(asked, present)
    if additional > at_most:
        raise Refused("POLICY_VIOLATION", "Excessively large number of partitions per request.")
    factor = len(topic.partitions[0].replicas)
    if asked.assignments is None:
        replicas = place(list(image.brokers.values()), additional, factor, random)
    else:
        replicas = [each.broker_ids for each in asked.assignments]
        for index, ids in enumerate(replicas, present):
            check_assignment(image, ids, index, factor)
    return _records(image, topic, replicas)


def _additional(asked: CreatePartitionsTopic, present: int) -> int:
    if asked.count == present:
        raise Refused("INVALID_PARTITIONS", f"Topic already has {present} partition(s).")
    if asked.count < present:
        raise Refused(
            "INVALID_PARTITIONS",
            f"The topic {asked.name} currently has {present} partition(s); "
            f"{asked.count} would not be an increase.",
        )
    additional = asked.count - present
    if asked.assignments is not None and len(asked.assignments) != additional:
        raise Refused(
            "INVALID_REPLICA_ASSIGNMENT",
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(asked.assignments)} assignment(s) were specified.",
        )
    return additional


def _records(image: ClusterImage, topic: TopicImage, replicas: list[list[int]]) -> list[Message]:
    first = len(topic.partitions)
    return [new_partition(image, topic.id, index, ids) for index, ids in enumerate(replicas, first)]


def _refused(name: str, refused: Refused) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name, error_code=refused.error.code, error_message=refused.told or None
    )
