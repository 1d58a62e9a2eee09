"""Adding partitions to a transaction, before the first record is written to them.

Clients add them explicitly, or, with version 2 of transactions, the partition's leader does so when they
produce. For older clients the leader only verifies that they have been added.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.coordination.effects import Producer, TopicPartition
from barnabas.transactions.states import ONGOING, PREPARED
from barnabas.transactions.transaction import Refused, Transaction, moved


def added(
    transaction: Transaction | None,
    asked: Producer,
    partitions: Sequence[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transaction:
    """The transaction with these partitions added; the same object if it has them already."""
    if transaction is not None and transaction.state in PREPARED:
        raise Refused("CONCURRENT_TRANSACTIONS")  # checked first: its producer may be getting a new id
    transaction = checked(transaction, asked)
    is_ongoing = transaction.state == ONGOING
    if is_ongoing and all(one in transaction.partitions for one in partitions):
        return transaction
    return moved(transaction, ONGOING, now_ms)._replace(
        partitions={**transaction.partitions, **dict.fromkeys(partitions)},
        started_ms=transaction.started_ms if is_ongoing else now_ms,
        client_version=client_version,
    )


def checked(transaction: Transaction | None, asked: Producer) -> Transaction:
    """The transaction, if it belongs to that producer."""
    if transaction is None or transaction.producer_id != asked.id:
        raise Refused("INVALID_PRODUCER_ID_MAPPING")
    if transaction.epoch != asked.epoch:
        raise Refused("PRODUCER_FENCED")
    return transaction


def verified(transaction: Transaction | None, asked: Producer) -> dict[TopicPartition, None]:
    """The partitions to which that producer may write now."""
    transaction = checked(transaction, asked)
    if transaction.state in PREPARED:
        raise Refused("CONCURRENT_TRANSACTIONS")
    return transaction.partitions
