"""TxnOffsetCommit: commits a group's offsets when the producer's transaction commits.

First the partition of the group is verified to be in the transaction (up to version 4), or is added to it
(from 5 on); see `coordinators.verification`. From version 3 on the request may name the member for which the
producer commits, and its generation is checked. Before that, topics and partitions that do not exist are
refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.verification import Claim, Operation, verify
from barnabas.coordination.effects import Effects, Now, Producer, Reply, TopicPartition
from barnabas.core.errors import BarnabasError, RecordListTooLarge, wire_error
from barnabas.groups import offset_commands
from barnabas.metadata.names import CONSUMER_OFFSETS
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services
    from barnabas.groups.shard import GroupShard
    from barnabas.metadata.image import ClusterImage

_FIRST_WITH_LOADING = 2
_FIRST_SEQUENCE = 0
_LOADING = wire_error("COORDINATOR_LOAD_IN_PROGRESS")
_NOT_AVAILABLE = wire_error("COORDINATOR_NOT_AVAILABLE")
_INVALID_GROUP = wire_error("INVALID_GROUP_ID")
_UNKNOWN = wire_error("UNKNOWN_TOPIC_OR_PARTITION")
_TOO_LARGE = wire_error("INVALID_COMMIT_OFFSET_SIZE")
# errors of the transaction coordinator, or of the connection to it, as clients can handle them
_TOLD = {
    wire_error("NETWORK_EXCEPTION"): _LOADING,
    wire_error("UNKNOWN_TOPIC_OR_PARTITION"): _NOT_AVAILABLE,
}


async def handle(
    request: TxnOffsetCommitRequest, context: RequestContext, services: Services
) -> TxnOffsetCommitResponse:
    refused = _sort_out(request, services.image)
    topics = await _answers(request, context, services) if request.topics else []
    by_name = {topic.name: topic for topic in reversed(topics)}
    for one in refused:
        known = by_name.get(one.name)
        if known is None:
            topics.append(one)
        else:
            known.partitions = [*one.partitions, *known.partitions]
    return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)


def _sort_out(request: TxnOffsetCommitRequest, image: ClusterImage) -> list[TxnOffsetCommitResponseTopic]:
    """Keep the existing partitions in the request; returns the refusals of the others."""
    kept, refused = [], []
    for topic in request.topics:
        found = image.topic(topic.name)
        numbers = range(0 if found is None else len(found.partitions))
        unknown = [one for one in topic.partitions if one.partition_index not in numbers]
        if unknown:
            refused.append(_refused(topic, unknown, _UNKNOWN.code))
            topic.partitions = [one for one in topic.partitions if one.partition_index in numbers]
        if topic.partitions:
            kept.append(topic)
    request.topics = kept
    return refused


async def _answers(
    request: TxnOffsetCommitRequest, context: RequestContext, services: Services
) -> list[TxnOffsetCommitResponseTopic]:
    try:
        response = await _committed(request, context.api_version, services)
    except RecordListTooLarge:
        error = _TOO_LARGE
    except BarnabasError as failure:
        error = _TOLD.get(failure.wire, failure.wire)
        if error is _LOADING and context.api_version < _FIRST_WITH_LOADING:
            error = _NOT_AVAILABLE  # on the other error, producers of these versions fail for good
    else:
        return list(response.topics)
    return [_refused(topic, topic.partitions, error.code) for topic in request.topics]


async def _committed(
    request: TxnOffsetCommitRequest, api_version: int, services: Services
) -> TxnOffsetCommitResponse:
    if not request.group_id:
        raise InvalidGroup("transactions commit offsets of groups that have a name")
    partition = services.groups.partition_of(request.group_id)
    host = await services.groups.host(partition)
    producer = Producer(request.producer_id, request.producer_epoch)
    claim = Claim(TopicPartition(CONSUMER_OFFSETS, partition), host.replica, _FIRST_SEQUENCE)
    operation = Operation.of_offset_commit(api_version)
    (verdict,) = await verify([claim], request.transactional_id, producer, operation, services)
    if isinstance(verdict, BarnabasError):
        raise verdict

    def command(shard: GroupShard, now: Now, reply: Reply) -> Effects:
        # markers go through the host as well: what is checked here holds when the records are appended
        host.replica.log.producers.check_verified(producer.id, producer.epoch, verdict)
        return offset_commands.commit_in_transaction(shard, request, now, reply)

    response: TxnOffsetCommitResponse = await host.ask(command, only_records=True)
    return response


class InvalidGroup(BarnabasError):
    """An empty group id."""

    wire = _INVALID_GROUP


def _refused(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition], error_code: int
) -> TxnOffsetCommitResponseTopic:
    answers = [
        TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error_code)
        for one in partitions
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers)
