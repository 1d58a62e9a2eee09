"""The log directories of brokers: which replica is in which, and what becomes of those in one that failed.

A broker chooses among its directories itself and says afterwards what it chose (AssignReplicasToDirs); one
that has only one is told so when the replica is made. A directory that fails while its broker lives on takes
the replicas in it out of every ISR, as the broker's death would, and out of the registration: who is in a
directory that is not registered does not lead (elections.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.controller.decisions import Decision
from barnabas.controller.elections import ElectionDefaults, without_replica
from barnabas.core.errors import wire_error
from barnabas.metadata.directories import directory_of
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import BrokerImage, PartitionImage
from barnabas.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from barnabas.metadata.versions import DIRECTORIES_SINCE
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryAssigned,
    PartitionAssigned,
    TopicAssigned,
    TopicData,
)
from barnabas.protocol.schema import Message, Uuid

_DEFAULTS = ElectionDefaults()


def assign_replicas_to_dirs(
    image: ClusterImage, request: AssignReplicasToDirsRequest, *, defaults: ElectionDefaults = _DEFAULTS
) -> Decision[AssignReplicasToDirsResponse]:
    """A broker says where it has put replicas; an answer for each."""
    if image.metadata_version < DIRECTORIES_SINCE:
        return Decision([], _answer([], "UNSUPPORTED_VERSION"))
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return Decision([], _answer([], "STALE_BROKER_EPOCH"))
    records: list[Message] = []
    answers: list[DirectoryAssigned] = []
    for directory in request.directories:
        topics = [_assign(image, broker, directory.id_, each, records, defaults) for each in directory.topics]
        answers.append(DirectoryAssigned(id_=directory.id_, topics=topics))
    return Decision(records, _answer(answers))


def _assign(
    image: ClusterImage,
    broker: BrokerImage,
    directory_id: Uuid,
    asked: TopicData,
    records: list[Message],
    defaults: ElectionDefaults,
) -> TopicAssigned:
    """The answer for one topic; what changes is added to `records`."""
    topic = image.topic_by_id(asked.topic_id)
    answers: list[PartitionAssigned] = []
    for each in asked.partitions:
        index, error = each.partition_index, "NONE"
        partition = None if topic is None else topic.partition(index)
        if topic is None:
            error = "UNKNOWN_TOPIC_ID"
        elif partition is None:
            error = "UNKNOWN_TOPIC_OR_PARTITION"
        elif broker.id not in partition.replicas:
            error = "NOT_LEADER_OR_FOLLOWER"
        elif directory_of(partition, broker.id) != directory_id:
            change = PartitionChangeRecord(partition_id=index, topic_id=topic.id)
            change.directories = _changed(partition, broker.id, directory_id)
            records.append(change)
            # one that has failed meanwhile; a broker that registered under an older version has told of none
            if broker.log_dirs and directory_id not in broker.log_dirs:
                records += without_replica(image, topic, index, broker.id, defaults)
        answers.append(PartitionAssigned(partition_index=index, error_code=wire_error(error).code))
    return TopicAssigned(topic_id=asked.topic_id, partitions=answers)


def _changed(partition: PartitionImage, broker_id: int, directory_id: Uuid) -> list[Uuid]:
    return [
        directory_id if replica == broker_id else directory
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
    ]


def _answer(directories: list[DirectoryAssigned], error: str = "NONE") -> AssignReplicasToDirsResponse:
    return AssignReplicasToDirsResponse(
        throttle_time_ms=0, error_code=wire_error(error).code, directories=directories
    )


def directories_failed(
    image: ClusterImage, broker: BrokerImage, failed: Sequence[Uuid], defaults: ElectionDefaults = _DEFAULTS
) -> list[Message]:
    """The changes when some of a broker's directories have failed; none where that is known."""
    news = [each for each in broker.log_dirs if each in failed]
    if not news:
        return []
    records: list[Message] = []
    for topic, index, partition in image.partitions_assigned(broker.id):
        if directory_of(partition, broker.id) in news:
            records += without_replica(image, topic, index, broker.id, defaults)
    left = [each for each in broker.log_dirs if each not in news]
    records.append(
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=left)
    )
    return records
