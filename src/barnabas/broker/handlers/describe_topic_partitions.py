"""DescribeTopicPartitions: topics in the order of their names, a limited number of partitions at a time.

The limit is max.request.partition.size.limit, or the client's limit if that is lower (but at least one); the
cursor names the next partition. A cursor must name one of the requested topics, unless all are requested.
Topics that do not exist are included, and do not count towards the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.handlers.metadata import TOPIC_OPERATIONS, partition_state
from barnabas.controller.decisions import Refused
from barnabas.controller.names import check_name
from barnabas.core.errors import wire_error
from barnabas.metadata.names import is_internal
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas.protocol.schema import NO_UUID

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services
    from barnabas.metadata.parts import PartitionImage, TopicImage

_NOT_ASKED = -(2**31)
_INVALID_REQUEST = wire_error("INVALID_REQUEST").code
_UNKNOWN_TOPIC = wire_error("UNKNOWN_TOPIC_OR_PARTITION").code


async def handle(
    request: DescribeTopicPartitionsRequest, context: RequestContext, services: Services
) -> DescribeTopicPartitionsResponse:
    cursor, asked = request.cursor, [topic.name for topic in request.topics]
    response = DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[], next_cursor=None)
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        response.topics = [_failed(name, _INVALID_REQUEST, _NOT_ASKED) for name in dict.fromkeys(asked)]
        return response
    start = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    limit = services.settings.integer("max.request.partition.size.limit")
    left = max(1, min(limit, request.response_partition_limit))
    for name in sorted({name for name in asked or services.image.topics_by_name if name >= start[0]}):
        if not left:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = services.image.topic(name)
        if topic is None:
            response.topics.append(_failed(name, _error_of(name), TOPIC_OPERATIONS))
            continue
        first = start[1] if name == start[0] else 0
        indexes = range(first, min(first + left, len(topic.partitions)))
        response.topics.append(_described(topic, indexes, context, services))
        left -= len(indexes)
        if first + len(indexes) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=first + len(indexes))
            break
    return response


def _error_of(name: str) -> int:
    try:
        check_name(name)
    except Refused as refused:
        return refused.error.code
    return _UNKNOWN_TOPIC


def _failed(name: str, error_code: int, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error_code,
        name=name,
        topic_id=NO_UUID,
        is_internal=is_internal(name) and error_code == _UNKNOWN_TOPIC,
        partitions=[],
        topic_authorized_operations=operations,
    )


def _described(
    topic: TopicImage, indexes: range, context: RequestContext, services: Services
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(index, topic.partitions[index], context, services) for index in indexes],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    index: int, image: PartitionImage, context: RequestContext, services: Services
) -> DescribeTopicPartitionsResponsePartition:
    error_code, leader_id, offline = partition_state(image, context.listener, services)
    return DescribeTopicPartitionsResponsePartition(
        error_code=error_code,
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=image.leader_epoch,
        replica_nodes=list(image.replicas),
        isr_nodes=list(image.isr),
        eligible_leader_replicas=list(image.elr),
        last_known_elr=list(image.last_known_elr),
        offline_replicas=offline,
    )
