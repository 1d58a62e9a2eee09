"""DeleteRecords: move the start of partitions up to an offset, or (-1) to the high watermark.

It is durable before it is answered, and readers below it get OFFSET_OUT_OF_RANGE from then on. The files go
with the next look at retention. As in Kafka, a topic that is compacted only, and an internal one, keep what
they have. The answer waits until every replica that is alive has deleted as much: followers tell with their
fetches where their logs start. It waits no longer than the request says, and tells then how far they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.log.trimming import delete_records
from barnabas.metadata.names import is_internal
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.protocol.schema import NO_UUID

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.replicas.replica import Replica
    from barnabas.broker.services import Services

_NOTHING_LEFT = -1
_HIGH_WATERMARK = -1  # as an offset to delete up to
_AT_ONCE = 200  # partitions that share one write of where logs start; together they do not hold the loop


class InternalTopic(BarnabasError):
    """A topic of the cluster's own, which clients do not shorten."""

    wire = wire_error("INVALID_TOPIC_EXCEPTION")


class CompactedOnly(BarnabasError):
    """A topic that keeps the last record of each key, for as long as it exists."""

    wire = wire_error("POLICY_VIOLATION")


class DeletionTimedOut(BarnabasError):
    """Not every replica has deleted in time; the leader has."""

    wire = wire_error("REQUEST_TIMED_OUT")


class _Wait(NamedTuple):
    """A result that holds once the low watermark has reached what was to go."""

    future: asyncio.Future[None]
    replica: Replica
    result: DeleteRecordsPartitionResult


async def handle(
    request: DeleteRecordsRequest, context: RequestContext, services: Services
) -> DeleteRecordsResponse:
    asked = {  # of a partition named twice, the last counts
        (topic.name, one.partition_index): one.offset for topic in request.topics for one in topic.partitions
    }
    answers: dict[str, list[DeleteRecordsPartitionResult]] = {}
    left, waits = list(asked.items()), list[_Wait]()
    while left:
        some, left = left[:_AT_ONCE], left[_AT_ONCE:]
        results = await asyncio.gather(*(_delete(*where, offset, services, waits) for where, offset in some))
        for ((name, _), _), result in zip(some, results, strict=True):
            answers.setdefault(name, []).append(result)
    if waits:
        await _wait_for(waits, request.timeout_ms)
    topics = [
        DeleteRecordsTopicResult(name=name, partitions=partitions) for name, partitions in answers.items()
    ]
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


async def _delete(
    name: str, partition: int, offset: int, services: Services, waits: list[_Wait]
) -> DeleteRecordsPartitionResult:
    try:
        topic = services.replicas.topic(name, NO_UUID, by_id=False)
        replica = await services.replicas.leader(topic, partition)
        if is_internal(name):
            raise InternalTopic(f"{name} is internal: clients do not delete from it")
        if "delete" not in replica.log.config.cleanup_policy:
            raise CompactedOnly(f"{name} is compacted only: nothing is deleted from it")
        start_offset = await delete_records(replica.log, offset)
        replica.started_later()
        result = _result(partition, replica.low_watermark, 0)
        up_to = start_offset if offset == _HIGH_WATERMARK else offset
        if result.low_watermark < up_to:
            waits.append(_Wait(replica.deleted(up_to), replica, result))
    except BarnabasError as error:
        return _result(partition, _NOTHING_LEFT, error.wire.code)
    return result


async def _wait_for(waits: Sequence[_Wait], timeout_ms: int) -> None:
    """Give the followers that long to delete as much."""
    try:
        await asyncio.wait([each.future for each in waits], timeout=max(0, timeout_ms) / 1000)
    except asyncio.CancelledError:
        for each in waits:
            each.future.cancel()
        raise
    for future, replica, result in waits:
        if not future.done():
            future.cancel()
            result.error_code = DeletionTimedOut.wire.code
        elif isinstance(error := future.exception(), BarnabasError):
            result.error_code, result.low_watermark = error.wire.code, _NOTHING_LEFT
        else:
            result.low_watermark = replica.low_watermark


def _result(partition: int, low_watermark: int, error_code: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=low_watermark, error_code=error_code
    )
