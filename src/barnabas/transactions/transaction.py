"""The state of a transactional id, as in its last record.

Values are immutable: a decision makes the next one, its record is written, and `replay` applies it.
`previous_producer_id` is the id before the last change, as in Kafka: it differs only if that change assigned
a new one. `partitions` is a dictionary for its order and fast look-up, and is never modified.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.coordination.effects import Markers, Producer, TopicPartition
from barnabas.coordination.records import KeyedRecord
from barnabas.core.errors import BarnabasError, InvariantViolation
from barnabas.transactions.records import TransactionLogKey, TransactionLogValue, TransactionPartitions
from barnabas.transactions.states import AT_REST, EMPTY, NAMES, NEXT, PREPARE_COMMIT

NO_ID = -1
NO_EPOCH = -1
NO_TIME = -1
LAST_EPOCH = 32767  # only in markers: a producer in this epoch could not be fenced any more
NO_PARTITIONS: dict[TopicPartition, None] = {}

# Versions of transactions, as the feature transaction.version counts them.
BUMPS_EPOCHS = 2  # every end of a transaction raises the epoch


class Refused(BarnabasError):
    """The command cannot be carried out; nothing has changed."""

    def __init__(self, error_name: str) -> None:
        super().__init__(error_name)
        self.error_name = error_name


class NeedsProducerId(BarnabasError):
    """The command needs an unused producer id: it must be repeated with one."""


class Transaction(NamedTuple):
    """The state of a transactional id."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: int = EMPTY
    partitions: dict[TopicPartition, None] = NO_PARTITIONS
    updated_ms: int = NO_TIME
    started_ms: int = NO_TIME
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    client_version: int = 0  # the transaction version of the client that began or ended it

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.epoch)

    @property
    def is_exhausted(self) -> bool:
        """Whether no further epoch can be assigned to a client."""
        return self.epoch >= LAST_EPOCH - 1

    @property
    def is_at_rest(self) -> bool:
        return self.state in AT_REST


class Move(NamedTuple):
    """A decision: the next state, and the previous epoch of the producer if that changes.

    The previous epoch is kept in memory only, as in Kafka: a repeated InitProducerId is recognised by it.
    """

    transaction: Transaction
    last_epoch: int | None = None


def moved(transaction: Transaction, state: int, now_ms: int) -> Transaction:
    """The transaction in another state."""
    if state not in NEXT[transaction.state]:
        raise InvariantViolation(f"{NAMES[transaction.state]} was to be followed by {NAMES[state]}")
    return transaction._replace(state=state, updated_ms=now_ms, previous_producer_id=transaction.producer_id)


def markers(transactional_id: str, transaction: Transaction) -> Markers:
    """The markers of a prepared transaction."""
    return Markers(
        transactional_id,
        transaction.producer,
        transaction.state == PREPARE_COMMIT,
        transaction.client_version,
        tuple(transaction.partitions),
    )


# ---- records ---------------------------------------------------------------------------------------------


def record_of(transactional_id: str, transaction: Transaction, level: int) -> KeyedRecord:
    """The record of a state; version 0 lacks the fields that came with flexible versions."""
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state == EMPTY else by_topic(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    return KeyedRecord(TransactionLogKey(transactional_id=transactional_id), value, min(level, 1))


def by_topic(partitions: dict[TopicPartition, None]) -> list[TransactionPartitions]:
    """Partitions as in a record."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return [TransactionPartitions(topic=topic, partition_ids=ids) for topic, ids in found.items()]


def transaction_of(record: KeyedRecord) -> Transaction:
    """The state in a record."""
    value = record.value
    assert isinstance(value, TransactionLogValue)
    has_tags = record.version >= 1
    partitions = {
        TopicPartition(one.topic, partition): None
        for one in value.transaction_partitions or ()
        for partition in one.partition_ids
    }
    return Transaction(
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        value.transaction_status,
        partitions or NO_PARTITIONS,
        value.transaction_last_update_timestamp_ms,
        value.transaction_start_timestamp_ms,
        value.previous_producer_id if has_tags else NO_ID,
        value.next_producer_id if has_tags else NO_ID,
        value.client_transaction_version if has_tags else 0,
    )
