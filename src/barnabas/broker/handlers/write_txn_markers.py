"""WriteTxnMarkers: ends transactions in partitions that this node leads.

Coordinators send it, this node's own included, and tools that end a transaction which its coordinator does
not know any more (`barnabas txn abort`, `kafka-transactions.sh abort`). Each partition gets all its markers
at once. Markers have a transaction version from 2 on; without it a marker may have the producer's current
epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.ends import End
from barnabas.coordination.effects import Producer, TopicPartition
from barnabas.core.errors import wire_error
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services

_INVALID_REQUEST = wire_error("INVALID_REQUEST").code

# the error of each partition, by producer id, as in the response
_Results = dict[int, dict[TopicPartition, int]]


async def handle(
    request: WriteTxnMarkersRequest, context: RequestContext, services: Services
) -> WriteTxnMarkersResponse:
    results: _Results = {}
    failures = await services.marker_writes.write(_by_partition(request, results))
    for (place, end), failure in failures.items():
        results[end.producer.id][place] = 0 if failure is None else failure.wire.code
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(errors))
            for producer_id, errors in results.items()
        ]
    )


def _by_partition(request: WriteTxnMarkersRequest, results: _Results) -> dict[TopicPartition, list[End]]:
    """The ends for each partition; those without a producer are refused."""
    places: dict[TopicPartition, list[End]] = {}
    for marker in request.markers:
        end = End(
            Producer(marker.producer_id, marker.producer_epoch),
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        is_of_nobody = marker.producer_id < 0 or marker.producer_epoch < 0
        errors = results.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for index in topic.partition_indexes:
                place = TopicPartition(topic.name, index)
                errors[place] = _INVALID_REQUEST if is_of_nobody else 0
                if not is_of_nobody:
                    places.setdefault(place, []).append(end)
    return places


def _topics(errors: dict[TopicPartition, int]) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for place, code in errors.items():
        result = WritableTxnMarkerPartitionResult(partition_index=place.partition, error_code=code)
        topics.setdefault(place.topic, []).append(result)
    return [WritableTxnMarkerTopicResult(name=name, partitions=found) for name, found in topics.items()]
