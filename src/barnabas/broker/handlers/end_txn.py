"""EndTxn: commit or abort a transaction.

It is answered when that is decided, as in Kafka: the markers follow, and whoever begins anew meanwhile is
told CONCURRENT_TRANSACTIONS. From version 2 on a producer is told that it is fenced by that name; from 5 on
every end raises the epoch, and the answer bears the new one.
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
