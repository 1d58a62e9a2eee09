"""OffsetFetch: what groups have committed. Nothing can be committed here yet, so that is the answer.

It is served for readers by assignment who name a group: they ask where it stood before they fall back to
their auto.offset.reset; librdkafka 2.16 crashes where a broker with a coordinator does not know this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import wire_error
from barnabas.metadata.names import CONSUMER_OFFSETS
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from barnabas.broker.requests import RequestContext
    from barnabas.broker.services import Services

_NOTHING = -1
_NOT_AVAILABLE = wire_error("COORDINATOR_NOT_AVAILABLE").code


async def handle(
    request: OffsetFetchRequest, context: RequestContext, services: Services
) -> OffsetFetchResponse:
    # what Apache Kafka committed in this directory is there, but cannot be read yet: that is not "nothing"
    has_commits = services.image.topic(CONSUMER_OFFSETS) is not None
    error_code = _NOT_AVAILABLE if has_commits else 0
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=number, committed_offset=_NOTHING, metadata="", error_code=error_code
                )
                for number in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    groups = [
        OffsetFetchResponseGroup(
            group_id=group.group_id,
            topics=[
                OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetFetchResponsePartitions(
                            partition_index=number,
                            committed_offset=_NOTHING,
                            metadata="",
                            error_code=error_code,
                        )
                        for number in topic.partition_indexes
                    ],
                )
                for topic in group.topics or ()
            ],
            error_code=error_code,
        )
        for group in request.groups
    ]
    return OffsetFetchResponse(throttle_time_ms=0, topics=topics, groups=groups, error_code=error_code)
