"""AlterPartition: a leader requests another ISR, which is in force once the response is sent.

A leader's metadata may be older than this controller's, or newer: a request with an older epoch is refused as
outdated, one with a newer epoch shows that this controller is no longer active. Only replicas that are
registered, unfenced and not in controlled shutdown join the ISR, in the incarnation that the leader has seen
(KIP-903): a later incarnation may have lost records.

The leader marks itself as recovered by the same request, after an unclean election. An ISR that completes a
reassignment ends it; if another replica leads then, the old leader gets NEW_LEADER_ELECTED.
"""

from __future__ import annotations

from barnabas.controller.decisions import Decision
from barnabas.controller.elections import ElectionDefaults
from barnabas.controller.reassignments import with_isr
from barnabas.core.errors import wire_error
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import RECOVERED, RECOVERING, PartitionImage, TopicImage
from barnabas.metadata.records import PartitionChangeRecord
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AskedPartition,
    AskedTopic,
    BrokerState,
    PartitionData,
    TopicData,
)
from barnabas.protocol.schema import Message

ANY_EPOCH = -1  # of a leader that does not know the broker epochs of its followers
_DEFAULTS = ElectionDefaults()


def alter_partition(
    image: ClusterImage, request: AlterPartitionRequest, *, defaults: ElectionDefaults = _DEFAULTS
) -> Decision[AlterPartitionResponse]:
    """The changes of every partition that may have the requested ISR, and a result for each."""
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return Decision([], _answer([], "STALE_BROKER_EPOCH"))
    changes: list[Message] = []
    topics: list[TopicData] = []
    for asked in request.topics:
        topic = image.topic_by_id(asked.topic_id)
        if topic is None:
            answers = [_refused(each, "UNKNOWN_TOPIC_ID") for each in asked.partitions]
        else:
            answers = _alter_topic(image, request.broker_id, topic, asked, changes, defaults)
        topics.append(TopicData(topic_id=asked.topic_id, partitions=answers))
    return Decision(changes, _answer(topics))


def _alter_topic(
    image: ClusterImage,
    leader: int,
    topic: TopicImage,
    asked: AskedTopic,
    changes: list[Message],
    defaults: ElectionDefaults,
) -> list[PartitionData]:
    answers: list[PartitionData] = []
    changed: set[int] = set()
    for each in asked.partitions:
        index = each.partition_index
        old = topic.partition(index)
        error = _error(image, leader, old, each)
        if old is None or error:
            answers.append(_refused(each, error))
            continue
        if index in changed:  # the first request counts, and begins a new partition epoch
            answers.append(_refused(each, "INVALID_UPDATE_VERSION"))
            continue
        change = _change(image, topic, index, each, defaults)
        if change is None:
            answers.append(_altered(index, old))
            continue
        changes.append(change)
        changed.add(index)
        new = old.changed_by(change)
        answers.append(_altered(index, new) if new.leader == leader else _refused(each, "NEW_LEADER_ELECTED"))
    return answers


def _error(image: ClusterImage, leader: int, old: PartitionImage | None, asked: AskedPartition) -> str:
    """The error if a partition cannot have that ISR; "" if it can."""
    if old is None:
        return "UNKNOWN_TOPIC_OR_PARTITION"
    if asked.leader_epoch > old.leader_epoch or asked.partition_epoch > old.partition_epoch:
        return "NOT_CONTROLLER"
    if asked.leader_epoch < old.leader_epoch:
        return "FENCED_LEADER_EPOCH"
    if leader != old.leader:
        return "INVALID_REQUEST"
    if asked.partition_epoch < old.partition_epoch:
        return "INVALID_UPDATE_VERSION"
    isr, state = _isr(asked), asked.leader_recovery_state
    if not _is_possible(isr, leader, old) or state not in (RECOVERED, RECOVERING):
        return "INVALID_REQUEST"
    if state == RECOVERING and (len(isr) > 1 or old.leader_recovery_state == RECOVERED):
        return "INVALID_REQUEST"
    if not all(_is_eligible(image, each) for each in _members(asked)):
        return "INELIGIBLE_REPLICA"
    return ""


def _is_possible(isr: tuple[int, ...], leader: int, old: PartitionImage) -> bool:
    return leader in isr and set(isr) <= set(old.replicas) and len(set(isr)) == len(isr)


def _is_eligible(image: ClusterImage, member: BrokerState) -> bool:
    broker = image.brokers.get(member.broker_id)
    return broker is not None and broker.is_active and member.broker_epoch in (ANY_EPOCH, broker.epoch)


def _members(asked: AskedPartition) -> list[BrokerState]:
    """Version 2 has the members without epochs."""
    return asked.new_isr_with_epochs or [
        BrokerState(broker_id=each, broker_epoch=ANY_EPOCH) for each in asked.new_isr
    ]


def _isr(asked: AskedPartition) -> tuple[int, ...]:
    return tuple(each.broker_id for each in _members(asked))


def _change(
    image: ClusterImage, topic: TopicImage, index: int, asked: AskedPartition, defaults: ElectionDefaults
) -> PartitionChangeRecord | None:
    change = with_isr(image, topic, index, _isr(asked), defaults)
    state = asked.leader_recovery_state
    if state == topic.partitions[index].leader_recovery_state:
        return change
    change = change or PartitionChangeRecord(partition_id=index, topic_id=topic.id)
    if change.leader_recovery_state != RECOVERING:  # otherwise a reassignment's end elected uncleanly
        change.leader_recovery_state = state
    return change


def _altered(index: int, partition: PartitionImage) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=0,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _refused(asked: AskedPartition, error: str) -> PartitionData:
    return PartitionData(
        partition_index=asked.partition_index,
        error_code=wire_error(error).code,
        leader_id=0,
        leader_epoch=0,
        isr=[],
        leader_recovery_state=0,
        partition_epoch=0,
    )


def _answer(topics: list[TopicData], error: str = "NONE") -> AlterPartitionResponse:
    return AlterPartitionResponse(throttle_time_ms=0, error_code=wire_error(error).code, topics=topics)
