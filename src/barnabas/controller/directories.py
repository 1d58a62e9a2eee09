"""The log directories of brokers: the assignment of replicas, and the failure of a directory.

A broker chooses among its directories itself and reports its choice afterwards (AssignReplicasToDirs); with
only one directory, the assignment is made with the replica. A directory that fails while its broker is alive
removes the replicas in it from every ISR, as the broker's death would, and is removed from the registration:
a replica in an unregistered directory cannot lead (elections.py).
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
    """Process a broker's report of the directories of its replicas; a result for each."""
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
    """The results for one topic; changes are added to `records`."""
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
            # it has failed meanwhile; a broker that registered under an older version named no directories
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
    """The changes after some of a broker's directories have failed; none if that is known already."""
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
