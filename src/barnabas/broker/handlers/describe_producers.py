"""DescribeProducers: the producer state of a partition, as this node's replica knows it.

Clients ask the leader unless they name a broker: every replica answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import Refused
from barnabas.controller.names import check_name
from barnabas.core.errors import BarnabasError, WireError, wire_error
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services
    from barnabas.metadata.parts import TopicImage

_UNKNOWN = wire_error("UNKNOWN_TOPIC_OR_PARTITION")


async def handle(
    request: DescribeProducersRequest, context: RequestContext, services: Services
) -> DescribeProducersResponse:
    topics = [
        TopicResponse(
            name=asked.name,
            partitions=[await _describe(asked.name, index, services) for index in asked.partition_indexes],
        )
        for asked in request.topics
    ]
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


async def _describe(name: str, index: int, services: Services) -> PartitionResponse:
    topic = services.image.topic(name)
    if topic is not None:
        return await _known(topic, index, services)
    try:
        check_name(name)
    except Refused as refused:
        return _failed(index, refused.error, refused.told)
    return _failed(index, _UNKNOWN, "This server does not host this topic-partition.")


async def _known(topic: TopicImage, index: int, services: Services) -> PartitionResponse:
    try:
        replica = services.replicas.followed(topic, index)
        if replica is None:
            replica = await services.replicas.leader(topic, index)
    except BarnabasError as error:
        return _failed(index, error.wire, None)
    producers = [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.txn_first_offset,
        )
        for entry in replica.log.producers.entries()
    ]
    return PartitionResponse(
        partition_index=index, error_code=0, error_message=None, active_producers=producers
    )


def _failed(index: int, error: WireError, message: str | None) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=message, active_producers=[]
    )
