"""InitProducerId: an id for a producer whose records are written once, in their order (idempotence).

Every call without a transactional id gets a new id in epoch 0, whatever id and epoch it had before (told
from version 3 on): an idempotent producer raises its epoch by itself. While no block of ids can be had the
answer is COORDINATOR_LOAD_IN_PROGRESS, as in Kafka: clients try again.

There are no transactions yet. FindCoordinator says so first; who asks here nevertheless gets
UNSUPPORTED_VERSION, after the checks that Kafka makes. Java's producer takes it for fatal at once,
librdkafka logs it until its init_transactions times out. The errors that librdkafka takes for fatal all
speak of something else (access, timeouts), and a retriable one would make Java wait for its whole
max.block.ms.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError, InvariantViolation, wire_error
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from barnabas.broker.requests import RequestContext
    from barnabas.broker.services import Services

logger = logging.getLogger("barnabas.producer_ids")


async def handle(
    request: InitProducerIdRequest, context: RequestContext, services: Services
) -> InitProducerIdResponse:
    refusal = _refusal(request, services)
    if refusal is not None:
        return _failed(refusal)
    try:
        producer_id = await services.producer_ids.next()
    except InvariantViolation:
        raise
    except BarnabasError as error:
        logger.warning("no producer id for %r: %s", context.client_id, error)
        return _failed("COORDINATOR_LOAD_IN_PROGRESS")
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)


def _refusal(request: InitProducerIdRequest, services: Services) -> str | None:
    """The name of the error, if there is one."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return "INVALID_REQUEST"  # of an id and its epoch, one alone says nothing
    if request.transactional_id is None:
        return None
    if not request.transactional_id:
        return "INVALID_REQUEST"
    if not 0 < request.transaction_timeout_ms <= services.settings.integer("transaction.max.timeout.ms"):
        return "INVALID_TRANSACTION_TIMEOUT"
    return "UNSUPPORTED_VERSION"


def _failed(error_name: str) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=wire_error(error_name).code,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
    )
