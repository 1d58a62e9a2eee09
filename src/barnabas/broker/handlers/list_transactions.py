"""ListTransactions: the transactional ids that this node coordinates, as far as they pass the filters.

By state and producer id; from version 1 on by how long a transaction is open, from 2 on by a pattern that the
whole id has to match. States that there are not come back by name. While a partition is being loaded the
answer would lack its ids: clients are told to try again.
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
        await asyncio.sleep(0)  # there may be many: others have their turn
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
