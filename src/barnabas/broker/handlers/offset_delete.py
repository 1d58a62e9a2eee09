"""OffsetDelete: deletes a group's committed offsets of partitions that it does not read.

An unknown group, or one whose members are not consumers, is an error of the whole request. A subscribed topic
is GROUP_SUBSCRIBED_TO_TOPIC, a partition that does not exist UNKNOWN_TOPIC_OR_PARTITION. A partition without
a committed offset is no error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.groups import offset_commands
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services
    from barnabas.metadata.image import ClusterImage

_INVALID_GROUP = wire_error("INVALID_GROUP_ID").code
_UNKNOWN = wire_error("UNKNOWN_TOPIC_OR_PARTITION").code


async def handle(
    request: OffsetDeleteRequest, context: RequestContext, services: Services
) -> OffsetDeleteResponse:
    if not request.group_id:
        return _failed(_INVALID_GROUP)
    known, refused = _sort_out(request, services.image)
    asked = OffsetDeleteRequest(group_id=request.group_id, topics=known)
    try:
        response: OffsetDeleteResponse = await services.groups.ask(
            request.group_id,
            lambda shard, now, reply: offset_commands.delete(shard, asked, reply),
            only_records=True,
        )
    except BarnabasError as error:
        return _failed(error.wire.code)
    by_name = refused  # the refused partitions of a topic come first
    for topic in response.topics:
        by_name.setdefault(topic.name, []).extend(topic.partitions)
    topics = [OffsetDeleteResponseTopic(name=name, partitions=some) for name, some in by_name.items() if some]
    return OffsetDeleteResponse(error_code=0, throttle_time_ms=0, topics=topics)


def _sort_out(
    request: OffsetDeleteRequest, image: ClusterImage
) -> tuple[list[OffsetDeleteRequestTopic], dict[str, list[OffsetDeleteResponsePartition]]]:
    """The existing partitions, and the refusals of the others by topic."""
    known = []
    refused: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for topic in request.topics:
        found = image.topic(topic.name)
        numbers = range(0 if found is None else len(found.partitions))
        refused.setdefault(topic.name, []).extend(
            OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=_UNKNOWN)
            for one in topic.partitions
            if one.partition_index not in numbers
        )
        there = [one for one in topic.partitions if one.partition_index in numbers]
        if there:
            known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=there))
    return known, refused


def _failed(error_code: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error_code, throttle_time_ms=0, topics=[])
