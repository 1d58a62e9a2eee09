"""EndTxn: commits or aborts a transaction.

It is answered when that is decided, as in Kafka: the markers follow, and a new transaction of the producer
gets CONCURRENT_TRANSACTIONS until they are written. From version 2 on a fenced producer gets PRODUCER_FENCED;
from 5 on every end raises the epoch, and the response has the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.fresh_ids import ask_with_fresh_id
from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.transactions.answers import end_answer

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services


async def handle(request: EndTxnRequest, context: RequestContext, services: Services) -> EndTxnResponse:
    if not request.transactional_id:
        return end_answer("INVALID_REQUEST")
    try:
        answer: EndTxnResponse = await ask_with_fresh_id(
            request.transactional_id,
            lambda shard, now, reply, fresh: shard.end(request, context.api_version, now, reply, fresh),
            services,
        )
    except BarnabasError as error:
        return end_answer(error.wire.name)
    return answer
