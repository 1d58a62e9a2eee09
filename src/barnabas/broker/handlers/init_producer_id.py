"""InitProducerId: an id for an idempotent or transactional producer.

Without a transactional id every request gets a new id in epoch 0, whatever id and epoch it names (from
version 3 on): an idempotent producer raises its epoch by itself. With a transactional id, its coordinator
answers. While there is no block of ids the response is COORDINATOR_LOAD_IN_PROGRESS, as in Kafka, and clients
retry.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services

logger = logging.getLogger("barnabas.producer_ids")


async def handle(
    request: InitProducerIdRequest, context: RequestContext, services: Services
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return await _transactional(request, context, services)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _failed("INVALID_REQUEST")  # an id without its epoch, or an epoch without its id
    try:
        producer_id = await services.producer_ids.next()
    except NOT_COMMITTED:  # the reason is logged elsewhere, once: clients retry many times a second
        return _failed("COORDINATOR_LOAD_IN_PROGRESS")
    except BarnabasError as error:
        logger.warning("no producer id for %r: %s", context.client_id, error)
        return _failed("COORDINATOR_LOAD_IN_PROGRESS")
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)


async def _transactional(
    request: InitProducerIdRequest, context: RequestContext, services: Services
) -> InitProducerIdResponse:
    # imported only for transactional producers
    from barnabas.broker.coordinators.fresh_ids import ask_with_fresh_id
    from barnabas.transactions.initialising import refusal_of

    name = request.transactional_id
    assert name is not None
    refusal = refusal_of(request, services.settings.integer("transaction.max.timeout.ms"))
    if refusal is not None:
        return _failed(refusal)
    try:
        answer: InitProducerIdResponse = await ask_with_fresh_id(
            name,
            lambda shard, now, reply, fresh: shard.init_producer_id(
                request, context.api_version, now, reply, fresh
            ),
            services,
        )
    except BarnabasError as error:
        return _failed(error.wire.name)
    return answer


def _failed(error_name: str) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=wire_error(error_name).code,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
    )
