"""WriteTxnMarkers: have transactions ended in partitions that this node leads.

Coordinators on other nodes send it, and tools that end a transaction whose coordinator has forgotten it
(`barnabas txn abort`, `kafka-transactions.sh abort`). The transaction version of a marker is told from 2 on;
without it the marker may bear the producer's own epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.ends import End, write_ends
from barnabas.coordination.effects import Producer, TopicPartition
from barnabas.core.errors import wire_error
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
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

# the error of each partition, by producer id, as the response has it
_Results = dict[int, dict[TopicPartition, int]]


async def handle(
    request: WriteTxnMarkersRequest, context: RequestContext, services: Services
) -> WriteTxnMarkersResponse:
    results: _Results = {}
    for marker in request.markers:
        await _write(marker, results, services)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(errors))
            for producer_id, errors in results.items()
        ]
    )


async def _write(marker: WritableTxnMarker, results: _Results, services: Services) -> None:
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
            if is_of_nobody:
                errors[place] = _INVALID_REQUEST
                continue
            (failure,) = await write_ends(place, [end], services)
            errors[place] = 0 if failure is None else failure.wire.code


def _topics(errors: dict[TopicPartition, int]) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for place, code in errors.items():
        result = WritableTxnMarkerPartitionResult(partition_index=place.partition, error_code=code)
        topics.setdefault(place.topic, []).append(result)
    return [WritableTxnMarkerTopicResult(name=name, partitions=found) for name, found in topics.items()]
