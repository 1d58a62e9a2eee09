"""The reassignment of partitions to other brokers.

During a reassignment a partition has its target replicas and, after them, those that will be removed. It is
complete when all adding replicas are in sync; if more are removed than added, all target replicas must be.
Then the others are removed, at once if that holds from the start. A reassignment can be given another target,
or be cancelled: then the adding replicas are removed, unless only they are in sync.
"""

from __future__ import annotations

from barnabas.controller.decisions import Decision, Refused
from barnabas.controller.elections import ElectionDefaults, allows_unclean, with_replicas
from barnabas.controller.topics import check_assignment, default_directory
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import PartitionImage, TopicImage
from barnabas.metadata.records import PartitionChangeRecord
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from barnabas.protocol.schema import Message, Uuid

_DEFAULTS = ElectionDefaults()


def alter_reassignments(
    image: ClusterImage,
    request: AlterPartitionReassignmentsRequest,
    *,
    defaults: ElectionDefaults = _DEFAULTS,
) -> Decision[AlterPartitionReassignmentsResponse]:
    """The changes that begin, modify or end a reassignment, and a result for each requested partition.

    Of a partition that is named twice, only the first valid change is made.
    """
    changes: dict[tuple[str, int], PartitionChangeRecord] = {}
    topics: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        results: list[ReassignablePartitionResponse] = []
        for asked in topic.partitions:
            try:
                change = _alter(image, topic.name, asked, defaults, request.allow_replication_factor_change)
            except Refused as refused:
                results.append(_result(asked.partition_index, refused))
                continue
            if change is not None:
                changes.setdefault((topic.name, asked.partition_index), change)
            results.append(_result(asked.partition_index))
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=results))
    response = AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=0,
        error_message=None,
        responses=topics,
    )
    records: list[Message] = list(changes.values())
    return Decision(records, response)


def _result(index: int, refused: Refused | None = None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index,
        error_code=0 if refused is None else refused.error.code,
        error_message=None if refused is None else refused.told or None,
    )


def _alter(
    image: ClusterImage,
    name: str,
    asked: ReassignablePartition,
    defaults: ElectionDefaults,
    may_change_factor: bool,
) -> PartitionChangeRecord | None:
    topic = image.topic(name)
    if topic is None:
        raise Refused("UNKNOWN_TOPIC_OR_PARTITION", f"Unable to find a topic named {name}.")
    index = asked.partition_index
    old = topic.partition(index)
    if old is None:
        raise Refused("UNKNOWN_TOPIC_OR_PARTITION", f"Unable to find partition {name}:{index}.")
    if asked.replicas is None:
        return _cancelled(image, topic, index, old, defaults)
    check_assignment(image, asked.replicas)
    factor = len(old.replicas) - len(old.adding_replicas)
    if not may_change_factor and len(asked.replicas) != factor:
        raise Refused(
            "INVALID_REPLICATION_FACTOR",
            f"The replication factor is changed from {factor} to {len(asked.replicas)}",
        )
    return _moved(image, topic, index, tuple(asked.replicas), defaults)


def _moved(
    image: ClusterImage, topic: TopicImage, index: int, target: tuple[int, ...], defaults: ElectionDefaults
) -> PartitionChangeRecord | None:
    old = topic.partitions[index]
    removing = tuple(each for each in old.replicas if each not in target)
    adding = tuple(each for each in target if each not in old.replicas or each in old.adding_replicas)
    isr = arrived_isr(target, adding, removing, old.isr)
    if isr is not None:
        return _told(image, topic, index, target, isr, defaults)
    return _told(image, topic, index, (*target, *removing), old.isr, defaults, adding, removing)


def arrived_isr(
    target: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...], isr: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The ISR of a partition whose reassignment is complete; None if it is not.

    If fewer replicas are added than removed, all target replicas have to be in sync: otherwise the ISR could
    become smaller than before.
    """
    left = tuple(each for each in isr if each in target)
    needed = target if len(adding) < len(removing) else adding
    return left if left and set(needed) <= set(left) else None


def with_isr(
    image: ClusterImage, topic: TopicImage, index: int, isr: tuple[int, ...], defaults: ElectionDefaults
) -> PartitionChangeRecord | None:
    """The change to another ISR, which may complete a reassignment; None if nothing changes."""
    old = topic.partitions[index]
    if _moves(old):
        target = tuple(each for each in old.replicas if each not in old.removing_replicas)
        left = arrived_isr(target, old.adding_replicas, old.removing_replicas, isr)
        if left is not None:
            return _told(image, topic, index, target, left, defaults)
    return _told(image, topic, index, old.replicas, isr, defaults, old.adding_replicas, old.removing_replicas)


def _cancelled(
    image: ClusterImage, topic: TopicImage, index: int, old: PartitionImage, defaults: ElectionDefaults
) -> PartitionChangeRecord | None:
    if not _moves(old):
        raise Refused("NO_REASSIGNMENT_IN_PROGRESS", "")
    replicas = tuple(each for each in old.replicas if each not in old.adding_replicas)
    isr = tuple(each for each in old.isr if each in replicas)
    if not isr and not allows_unclean(image, topic, defaults):
        raise Refused(
            "INVALID_REPLICA_ASSIGNMENT",
            f"Unable to revert partition assignment for {topic.name}:{index} because it would require "
            "an unclean leader election.",
        )
    return _told(image, topic, index, replicas, isr, defaults)


def _told(
    image: ClusterImage,
    topic: TopicImage,
    index: int,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    defaults: ElectionDefaults,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> PartitionChangeRecord | None:
    """The record of the change; None if nothing changes."""
    old = topic.partitions[index]
    change = with_replicas(image, topic, index, replicas, isr, defaults)
    if replicas != old.replicas:
        change.directories = [_directory(image, old, each) for each in replicas]
    if adding != old.adding_replicas:
        change.adding_replicas = list(adding)
    if removing != old.removing_replicas:
        change.removing_replicas = list(removing)
    # an empty record has no attributes except those that identify the partition
    return change if len(vars(change)) > 2 else None


def _directory(image: ClusterImage, old: PartitionImage, replica: int) -> Uuid:
    if replica in old.replicas:
        return old.directories[old.replicas.index(replica)]
    return default_directory(image.brokers[replica])


def _moves(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def list_reassignments(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The ongoing reassignments of the requested partitions; null requests all."""
    asked = request.topics
    if asked is None:
        asked = [
            ListPartitionReassignmentsTopics(
                name=topic.name, partition_indexes=list(range(len(topic.partitions)))
            )
            for topic in image.topics_by_name.values()
        ]
    topics = []
    for each in asked:
        partitions = _ongoing(image.topic(each.name), each.partition_indexes)
        if partitions:
            topics.append(OngoingTopicReassignment(name=each.name, partitions=partitions))
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=0, error_message=None, topics=topics
    )


def _ongoing(topic: TopicImage | None, indexes: list[int]) -> list[OngoingPartitionReassignment]:
    if topic is None:
        return []
    return [
        OngoingPartitionReassignment(
            partition_index=index,
            replicas=list(partition.replicas),
            adding_replicas=list(partition.adding_replicas),
            removing_replicas=list(partition.removing_replicas),
        )
        for index in indexes
        if (partition := topic.partition(index)) is not None and _moves(partition)
    ]
