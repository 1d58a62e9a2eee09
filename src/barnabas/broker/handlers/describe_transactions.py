"""DescribeTransactions: the state of transactional ids; each is answered by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from barnabas.transactions.listing import failed

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services


async def handle(
    request: DescribeTransactionsRequest, context: RequestContext, services: Services
) -> DescribeTransactionsResponse:
    states = [await _describe(name, services) for name in request.transactional_ids]
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


async def _describe(transactional_id: str, services: Services) -> TransactionState:
    if not transactional_id:
        return failed(transactional_id, "INVALID_REQUEST")
    try:
        state: TransactionState = await services.transactions.ask(
            transactional_id,
            lambda shard, now, reply: shard.describe(transactional_id, reply),
            writes=False,
        )
    except BarnabasError as error:
        return failed(transactional_id, error.wire.name)
    return state
