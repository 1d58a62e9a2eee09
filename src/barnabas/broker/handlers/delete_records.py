"""DeleteRecords: move the start of partitions up to an offset, or (-1) to the high watermark.

It is durable before it is answered, and readers below it get OFFSET_OUT_OF_RANGE from then on. The files go
with the next look at retention. As in Kafka, a topic that is compacted only, and an internal one, keep what
they have.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

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
    from barnabas.broker.services import Services

_NOTHING_LEFT = -1
_AT_ONCE = 200  # partitions that share one write of where logs start; together they do not hold the loop


class InternalTopic(BarnabasError):
    """A topic of the cluster's own, which clients do not shorten."""

    wire = wire_error("INVALID_TOPIC_EXCEPTION")


class CompactedOnly(BarnabasError):
    """A topic that keeps the last record of each key, for as long as it exists."""

    wire = wire_error("POLICY_VIOLATION")


async def handle(
    request: DeleteRecordsRequest, context: RequestContext, services: Services
) -> DeleteRecordsResponse:
    asked = {  # of a partition named twice, the last counts
        (topic.name, one.partition_index): one.offset for topic in request.topics for one in topic.partitions
    }
    answers: dict[str, list[DeleteRecordsPartitionResult]] = {}
    left = list(asked.items())
    while left:
        some, left = left[:_AT_ONCE], left[_AT_ONCE:]
        results = await asyncio.gather(*(_delete(*where, offset, services) for where, offset in some))
        for ((name, _), _), result in zip(some, results, strict=True):
            answers.setdefault(name, []).append(result)
    topics = [
        DeleteRecordsTopicResult(name=name, partitions=partitions) for name, partitions in answers.items()
    ]
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


async def _delete(name: str, partition: int, offset: int, services: Services) -> DeleteRecordsPartitionResult:
    try:
        topic = services.replicas.topic(name, NO_UUID, by_id=False)
        replica = await services.replicas.leader(topic, partition)
        if is_internal(name):
            raise InternalTopic(f"{name} is internal: clients do not delete from it")
        if "delete" not in replica.log.config.cleanup_policy:
            raise CompactedOnly(f"{name} is compacted only: nothing is deleted from it")
        start_offset = await delete_records(replica.log, offset)
    except BarnabasError as error:
        return _result(partition, _NOTHING_LEFT, error.wire.code)
    return _result(partition, start_offset, 0)


def _result(partition: int, low_watermark: int, error_code: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=low_watermark, error_code=error_code
    )
