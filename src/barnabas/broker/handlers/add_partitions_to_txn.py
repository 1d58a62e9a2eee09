"""AddPartitionsToTxn: a transaction will write to these partitions.

Up to version 3 a client adds them to one transaction. From 4 on brokers send it, for several transactions: to
add partitions for clients that leave it to them, or only to verify (`verify_only`). If one partition does not
exist, none is added, and the others get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.transactions.answers import partitions_of, partitions_result
from barnabas.transactions.transaction import BUMPS_EPOCHS

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services
    from barnabas.coordination.effects import TopicPartition

FIRST_OF_BROKERS = 4


async def handle(
    request: AddPartitionsToTxnRequest, context: RequestContext, services: Services
) -> AddPartitionsToTxnResponse:
    if context.api_version >= FIRST_OF_BROKERS:
        asked = {one.transactional_id: one for one in request.transactions}
        # each waits for the followers of its own coordinator partition, or until that is loaded
        added = [_add(one, context, services) for one in asked.values()]
        results = [await added[0]] if len(added) == 1 else await asyncio.gather(*added)
        return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=0, results_by_transaction=results)
    one = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=request.v3_and_below_topics,
    )
    result = await _add(one, context, services)
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        error_code=0,
        results_by_transaction=[],
        results_by_topic_v3_and_below=result.topic_results,
    )


async def _add(
    asked: AddPartitionsToTxnTransaction, context: RequestContext, services: Services
) -> AddPartitionsToTxnResult:
    missing = _missing(asked, services)
    if missing:
        errors = dict.fromkeys(partitions_of(asked), "OPERATION_NOT_ATTEMPTED")
        return partitions_result(asked, errors | dict.fromkeys(missing, "UNKNOWN_TOPIC_OR_PARTITION"))
    if not asked.transactional_id:
        return partitions_result(asked, "INVALID_REQUEST")
    version = BUMPS_EPOCHS if context.api_version >= FIRST_OF_BROKERS else 0
    try:
        result: AddPartitionsToTxnResult = await services.transactions.ask(
            asked.transactional_id,
            lambda shard, now, reply: shard.add_partitions(
                asked, now, reply, client_version=version, api_version=context.api_version
            ),
            only_records=True,
        )
    except BarnabasError as error:
        return partitions_result(asked, error.wire.name)
    return result


def _missing(asked: AddPartitionsToTxnTransaction, services: Services) -> list[TopicPartition]:
    missing = []
    for place in partitions_of(asked):
        topic = services.image.topic(place.topic)
        if topic is None or topic.partition(place.partition) is None:
            missing.append(place)
    return missing
