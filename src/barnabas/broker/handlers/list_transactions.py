"""ListTransactions: the transactional ids that this node coordinates and that match the filters.

The filters are state and producer id; from version 1 on the duration of the transaction, from 2 on a pattern
that the whole id must match. Unknown states are returned by name. While a partition is being loaded its ids
would be missing: then the request gets an error and is retried.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError, wire_error
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from barnabas.transactions.listing import InvalidPattern, filter_of

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services


async def handle(
    request: ListTransactionsRequest, context: RequestContext, services: Services
) -> ListTransactionsResponse:
    try:
        asked, unknown = filter_of(request)
    except InvalidPattern as error:
        return _failed(error.wire.name)
    try:
        hosts = await services.transactions.hosts()
    except BarnabasError:
        return _failed("COORDINATOR_LOAD_IN_PROGRESS")
    now_ms = services.clock.wall_ms()
    states: list[TransactionState] = []
    for host in hosts:
        states += asked.listed(host.shard.transactions, now_ms)
        await asyncio.sleep(0)  # let other tasks run: there may be many ids
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=0, unknown_state_filters=unknown, transaction_states=states
    )


def _failed(error_name: str) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=wire_error(error_name).code,
        unknown_state_filters=[],
        transaction_states=[],
    )
