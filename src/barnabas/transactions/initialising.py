"""InitProducerId: a producer begins, or continues after an error; earlier producers of its name are fenced.

A producer that sends its id and epoch (version 3 and later) continues: it gets the next epoch only if no
other producer has used its transactional id meanwhile. If the response was lost it repeats the request with
the previous epoch, and gets the same response again. An open transaction is aborted first, in a raised epoch,
and the producer retries until that is done.
"""

from __future__ import annotations

from barnabas.coordination.effects import Producer
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.transactions.ending import fenced
from barnabas.transactions.states import EMPTY, ONGOING, PREPARED
from barnabas.transactions.transaction import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    NO_PARTITIONS,
    NO_TIME,
    Move,
    NeedsProducerId,
    Refused,
    Transaction,
    moved,
)


def refusal_of(request: InitProducerIdRequest, max_timeout_ms: int) -> str | None:
    """The error of a request that is invalid regardless of the state of its transactional id."""
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        return "INVALID_REQUEST"  # an id and its epoch are only valid together
    if not request.transactional_id:
        return "INVALID_REQUEST"
    if not 0 < request.transaction_timeout_ms <= max_timeout_ms:
        return "INVALID_TRANSACTION_TIMEOUT"
    return None


def begun(fresh_producer_id: int | None, timeout_ms: int, now_ms: int) -> Move:
    """The state of a new transactional id."""
    if fresh_producer_id is None:
        raise NeedsProducerId("a new transactional id")
    transaction = Transaction(
        fresh_producer_id, 0, timeout_ms, updated_ms=now_ms, previous_producer_id=fresh_producer_id
    )
    return Move(transaction)


def initialised(
    transaction: Transaction,
    expected: Producer | None,
    last_epoch: int,
    *,
    timeout_ms: int,
    level: int,
    now_ms: int,
    fresh_producer_id: int | None,
) -> Move:
    """The next state of a known transactional id: ready for its next transaction, or being aborted."""
    if transaction.state in PREPARED:
        raise Refused("CONCURRENT_TRANSACTIONS")
    if expected is not None and not _is_known(transaction, expected):
        raise Refused("PRODUCER_FENCED")
    if transaction.state == ONGOING:
        return fenced(transaction, level, now_ms)
    is_current = expected is None or expected.epoch == transaction.epoch
    if transaction.is_exhausted and is_current:
        if fresh_producer_id is None:
            raise NeedsProducerId("the epochs of a producer id are used up")
        next_id, epoch = fresh_producer_id, 0
        last = transaction.epoch if expected is not None else NO_EPOCH
    elif transaction.is_exhausted:
        raise Refused("PRODUCER_FENCED")
    else:
        next_id = transaction.producer_id
        epoch, last = _next_epoch(transaction, expected, last_epoch)
    ready = moved(transaction, EMPTY, now_ms)._replace(
        producer_id=next_id,
        epoch=epoch,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        started_ms=NO_TIME,
    )
    return Move(ready, last)


def _is_known(transaction: Transaction, expected: Producer) -> bool:
    if expected.id == transaction.producer_id:
        return True  # its epoch is checked when it is raised
    # the response with the new id was lost
    return expected.id == transaction.previous_producer_id and expected.epoch >= LAST_EPOCH - 1


def _next_epoch(transaction: Transaction, expected: Producer | None, last_epoch: int) -> tuple[int, int]:
    """The epoch for the response, and the one before it."""
    if expected is None:
        return transaction.epoch + 1, NO_EPOCH
    if expected.epoch == transaction.epoch:
        return transaction.epoch + 1, transaction.epoch
    if expected.epoch == last_epoch:
        return transaction.epoch, last_epoch
    raise Refused("PRODUCER_FENCED")
