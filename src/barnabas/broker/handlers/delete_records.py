"""DeleteRecords: moves the start of partitions up to an offset, or (-1) to the high watermark.

The new start is durable before the response, and readers below it get OFFSET_OUT_OF_RANGE from then on. The
files are removed at the next retention check. As in Kafka, nothing is deleted from internal topics, and from
topics that are only compacted. The response waits until every replica that is alive has deleted as much:
followers report their log start offsets with their fetches. It waits at most the request's timeout, and then
has the low watermark reached so far.
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
_HIGH_WATERMARK = -1  # as the offset to delete up to
_AT_ONCE = 200  # partitions that share one write of their start offsets; few enough not to stall the loop


class InternalTopic(BarnabasError):
    """Clients do not delete records of internal topics."""

    wire = wire_error("INVALID_TOPIC_EXCEPTION")


class CompactedOnly(BarnabasError):
    """The topic is only compacted: it keeps the last record of each key."""

    wire = wire_error("POLICY_VIOLATION")


class DeletionTimedOut(BarnabasError):
    """Not every replica has deleted the records in time; the leader has."""

    wire = wire_error("REQUEST_TIMED_OUT")


class _Wait(NamedTuple):
    """A result that is valid once the low watermark has reached the offset to delete up to."""

    future: asyncio.Future[None]
    replica: Replica
    result: DeleteRecordsPartitionResult


async def handle(
    request: DeleteRecordsRequest, context: RequestContext, services: Services
) -> DeleteRecordsResponse:
    asked = {  # if a partition is named twice, the last entry counts
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
    """Wait for the followers to delete as much, at most `timeout_ms`."""
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
