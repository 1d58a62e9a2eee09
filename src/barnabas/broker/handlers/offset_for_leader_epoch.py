"""OffsetForLeaderEpoch: the end of a leader epoch, with which a reader detects records that were truncated.

The response has the largest epoch up to the requested one, and the offset at which it ended (the end of the
log for the current one); -1 and -1 if the log knows no such epoch. Replica ids (from version 3 on) change
nothing: only leaders answer here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError
from barnabas.log.reading import end_offset_for_epoch
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from barnabas.protocol.schema import NO_UUID

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services


async def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext, services: Services
) -> OffsetForLeaderEpochResponse:
    topics = [
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[await _answer(topic.topic, ask, services) for ask in topic.partitions],
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)


async def _answer(name: str, ask: OffsetForLeaderPartition, services: Services) -> EpochEndOffset:
    try:
        topic = services.replicas.topic(name, NO_UUID, by_id=False)
        replica = await services.replicas.leader(topic, ask.partition, ask.current_leader_epoch)
        replica.check_epoch(ask.current_leader_epoch)
    except BarnabasError as error:
        return EpochEndOffset(partition=ask.partition, error_code=error.wire.code)
    epoch, end_offset = end_offset_for_epoch(replica.log, ask.leader_epoch)
    return EpochEndOffset(partition=ask.partition, error_code=0, leader_epoch=epoch, end_offset=end_offset)
