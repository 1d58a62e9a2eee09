"""OffsetCommit: commits a group's offsets. Topics are named up to version 9, and have ids from 10 on.

Topics and partitions that do not exist are refused before the group is asked. If nothing remains the group is
not asked at all, and a topic without partitions has no answer. From 9 on an unknown group is
GROUP_ID_NOT_FOUND for a member, before that ILLEGAL_GENERATION. Versions 2 to 4 may have a retention time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.callers import caller_of
from barnabas.core.errors import BarnabasError, RecordListTooLarge, wire_error
from barnabas.groups import offset_commands
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services
    from barnabas.metadata.image import ClusterImage

_FIRST_BY_ID = 10
_UNKNOWN_ID = wire_error("UNKNOWN_TOPIC_ID").code
_UNKNOWN = wire_error("UNKNOWN_TOPIC_OR_PARTITION").code
_TOO_LARGE = wire_error("INVALID_COMMIT_OFFSET_SIZE").code


async def handle(
    request: OffsetCommitRequest, context: RequestContext, services: Services
) -> OffsetCommitResponse:
    refused = _sort_out(request, services.image, by_id=context.api_version >= _FIRST_BY_ID)
    topics = await _committed(request, context, services) if request.topics else []
    return OffsetCommitResponse(throttle_time_ms=0, topics=_merged(topics, refused))


def _sort_out(
    request: OffsetCommitRequest, image: ClusterImage, *, by_id: bool
) -> list[OffsetCommitResponseTopic]:
    """Keep the existing partitions in the request, with topic name and id; returns the refusals of the
    others."""
    kept, refused = [], []
    for topic in request.topics:
        found = image.topic_by_id(topic.topic_id) if by_id else image.topic(topic.name)
        if found is None:
            refused.append(_refused(topic, topic.partitions, _UNKNOWN_ID if by_id else _UNKNOWN))
            continue
        topic.name, topic.topic_id = found.name, found.id
        numbers = range(len(found.partitions))
        unknown = [one for one in topic.partitions if one.partition_index not in numbers]
        if unknown:
            refused.append(_refused(topic, unknown, _UNKNOWN))
            topic.partitions = [one for one in topic.partitions if one.partition_index in numbers]
        if topic.partitions:
            kept.append(topic)
    request.topics = kept
    return refused


async def _committed(
    request: OffsetCommitRequest, context: RequestContext, services: Services
) -> list[OffsetCommitResponseTopic]:
    caller = caller_of(context)
    try:
        response: OffsetCommitResponse = await services.groups.ask(
            request.group_id,
            lambda shard, now, reply: offset_commands.commit(shard, request, caller, now, reply),
            only_records=True,
        )
    except RecordListTooLarge:
        return [_refused(topic, topic.partitions, _TOO_LARGE) for topic in request.topics]
    except BarnabasError as error:
        return [_refused(topic, topic.partitions, error.wire.code) for topic in request.topics]
    return list(response.topics)


def _refused(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], error_code: int
) -> OffsetCommitResponseTopic:
    answers = [
        OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error_code)
        for one in partitions
    ]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)


def _merged(
    topics: list[OffsetCommitResponseTopic], refused: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """Merge the answers of a topic of which some partitions exist and others do not."""
    by_topic = {(topic.name, topic.topic_id): topic for topic in reversed(topics)}
    for one in refused:
        known = by_topic.get((one.name, one.topic_id))
        if known is None:
            topics.append(one)
        else:
            known.partitions = [*one.partitions, *known.partitions]
    return topics
