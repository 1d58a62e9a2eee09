"""The end of a transaction: decided by one record, written to its partitions as markers, then completed.

    clients of version 0 and 1   the epoch stays. A repeated EndTxn gets the same response.
    clients of version 2         every end raises the epoch, so that a late request cannot affect the next
                                 transaction. A repeated EndTxn has the previous epoch, and gets the same
                                 response; one with the current epoch ends the next transaction.

The response of version 2 if no transaction is open, by request:

                      abort, again   abort, new        commit, again   commit, new
    Empty             fenced         raises the epoch  fenced          INVALID_TXN_STATE
    CompleteAbort     as before      raises the epoch  INVALID_...     INVALID_TXN_STATE
    CompleteCommit    INVALID_...    raises the epoch  as before       INVALID_TXN_STATE

When the epochs are exhausted, the end assigns a new producer id with epoch 0; the markers have the last epoch
of the old one.
"""

from __future__ import annotations

from barnabas.coordination.effects import Producer
from barnabas.transactions.adding import checked
from barnabas.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
)
from barnabas.transactions.transaction import (
    BUMPS_EPOCHS,
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    NO_PARTITIONS,
    Move,
    NeedsProducerId,
    Refused,
    Transaction,
    moved,
)


def ended(transaction: Transaction | None, asked: Producer, *, is_commit: bool, now_ms: int) -> Move | None:
    """The end requested by a client of version 0 or 1; None if it has been made before."""
    transaction = checked(transaction, asked)
    if transaction.state in PREPARED:
        raise Refused("CONCURRENT_TRANSACTIONS")
    if transaction.state == (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT):
        return None
    if transaction.state != ONGOING:
        raise Refused("INVALID_TXN_STATE")
    prepared = moved(transaction, PREPARE_COMMIT if is_commit else PREPARE_ABORT, now_ms)
    return Move(prepared._replace(client_version=0, next_producer_id=NO_ID))


def ended_with_bump(
    transaction: Transaction | None,
    asked: Producer,
    *,
    is_commit: bool,
    now_ms: int,
    fresh_producer_id: int | None,
) -> Move | None:
    """The end requested by a client of version 2; None for a repeated request."""
    if transaction is None:
        raise Refused("INVALID_PRODUCER_ID_MAPPING")
    if transaction.state in PREPARED:
        raise Refused("CONCURRENT_TRANSACTIONS")  # checked first: its producer may be getting a new id
    is_past_id = _is_past_id(transaction, asked)
    if transaction.producer_id != asked.id and not is_past_id:
        raise Refused("INVALID_PRODUCER_ID_MAPPING")
    if transaction.epoch != asked.epoch:
        # the last epoch is never sent to a producer
        is_epoch_before = transaction.epoch == asked.epoch + 1 != LAST_EPOCH
        if transaction.state not in (COMPLETE_COMMIT, COMPLETE_ABORT) or not (is_past_id or is_epoch_before):
            raise Refused("PRODUCER_FENCED")
        if transaction.state != (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT):
            raise Refused("INVALID_TXN_STATE")
        return None
    if transaction.state != ONGOING and is_commit:
        raise Refused("INVALID_TXN_STATE")
    return _bumped(transaction, is_commit, now_ms, fresh_producer_id)


def _is_past_id(transaction: Transaction, asked: Producer) -> bool:
    """Whether that was the producer before it got its present id."""
    has_new_id = transaction.producer_id != transaction.previous_producer_id and transaction.epoch == 0
    return has_new_id and asked == (transaction.previous_producer_id, LAST_EPOCH - 1)


def _bumped(transaction: Transaction, is_commit: bool, now_ms: int, fresh_producer_id: int | None) -> Move:
    next_producer_id = NO_ID
    if transaction.is_exhausted:
        if fresh_producer_id is None:
            raise NeedsProducerId("the epochs of a producer id are used up")
        next_producer_id = fresh_producer_id
    prepared = moved(transaction, PREPARE_COMMIT if is_commit else PREPARE_ABORT, now_ms)._replace(
        epoch=min(transaction.epoch + 1, LAST_EPOCH),
        started_ms=transaction.started_ms if transaction.state == ONGOING else now_ms,
        next_producer_id=next_producer_id,
        client_version=BUMPS_EPOCHS,
    )
    return Move(prepared, transaction.epoch)


def fenced(transaction: Transaction, level: int, now_ms: int) -> Move:
    """The end of a transaction whose producer is late, or was replaced: aborted, in the next epoch.

    If that is the last epoch of its id, the next InitProducerId assigns a new one.
    """
    has_bumps = level >= BUMPS_EPOCHS
    prepared = moved(transaction, PREPARE_ABORT, now_ms)._replace(
        epoch=min(transaction.epoch + 1, LAST_EPOCH),
        next_producer_id=NO_ID,
        client_version=level if has_bumps else 0,
    )
    return Move(prepared, transaction.epoch if has_bumps else NO_EPOCH)


def completed(transaction: Transaction, now_ms: int) -> Transaction:
    """All partitions have their marker: the completed transaction."""
    is_commit = transaction.state == PREPARE_COMMIT
    producer = producer_after(transaction)
    return moved(transaction, COMPLETE_COMMIT if is_commit else COMPLETE_ABORT, now_ms)._replace(
        producer_id=producer.id, epoch=producer.epoch, partitions=NO_PARTITIONS, next_producer_id=NO_ID
    )


def producer_after(transaction: Transaction) -> Producer:
    """The producer id and epoch after the completion of a decided transaction."""
    if transaction.client_version >= BUMPS_EPOCHS and transaction.next_producer_id != NO_ID:
        return Producer(transaction.next_producer_id, 0)
    return transaction.producer
