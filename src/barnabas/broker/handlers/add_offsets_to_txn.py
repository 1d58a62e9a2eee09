"""AddOffsetsToTxn: a transaction will commit offsets of a group.

The transaction gets the partition of `__consumer_offsets` with the group's offsets. The topic is created if
it does not exist, since no client may have looked for the group's coordinator yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services


async def handle(
    request: AddOffsetsToTxnRequest, context: RequestContext, services: Services
) -> AddOffsetsToTxnResponse:
    if not request.transactional_id:
        return _answer(wire_error("INVALID_REQUEST").code)
    try:
        result = await _add(request, context, services)
    except BarnabasError as error:
        return _answer(error.wire.code)
    return _answer(result.topic_results[0].results_by_partition[0].partition_error_code)


async def _add(
    request: AddOffsetsToTxnRequest, context: RequestContext, services: Services
) -> AddPartitionsToTxnResult:
    await services.groups.find(request.group_id)
    partition = services.groups.partition_of(request.group_id)
    asked = AddPartitionsToTxnTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        verify_only=False,
        topics=[AddPartitionsToTxnTopic(name=services.groups.topic, partitions=[partition])],
    )
    result: AddPartitionsToTxnResult = await services.transactions.ask(
        request.transactional_id,
        lambda shard, now, reply: shard.add_partitions(
            asked, now, reply, client_version=0, api_version=context.api_version
        ),
        only_records=True,
    )
    return result


def _answer(error_code: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=error_code)
