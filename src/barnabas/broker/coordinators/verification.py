"""The first batch of a transaction in a partition is verified with the transaction coordinator (KIP-890).

The coordinator verifies that the partition was added to the transaction before, or adds it now, depending on
the client's version. The partition gives a guard before the request and checks it at the append, so that a
batch cannot reopen a transaction that was ended meanwhile. Where the producer has a transaction open in the
partition, no request is sent.

The request is an AddPartitionsToTxn to the broker that coordinates the transactional id, which may be this
one. The coordinator's errors are translated into those that clients of that version can handle.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.coordinators.coordinator import partition_for
from barnabas.coordination.effects import Producer, TopicPartition
from barnabas.core.errors import (
    WIRE_ERRORS,
    BarnabasError,
    WireError,
    wire_error,
)
from barnabas.log.producers import TRUSTED, Guard
from barnabas.metadata.names import TRANSACTION_STATE
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from barnabas.broker.replicas.replica import Replica
    from barnabas.broker.services import Services

_CONCURRENT = wire_error("CONCURRENT_TRANSACTIONS")
_FENCED = wire_error("PRODUCER_FENCED")
_INVALID_EPOCH = wire_error("INVALID_PRODUCER_EPOCH")
_ABORTABLE = wire_error("TRANSACTION_ABORTABLE")
_INVALID_STATE = wire_error("INVALID_TXN_STATE")
_NOT_ALLOWED = wire_error("CLUSTER_AUTHORIZATION_FAILED")
_UNKNOWN = wire_error("UNKNOWN_SERVER_ERROR")  # for error codes of newer brokers

_FIRST_OF_BROKERS = 4  # of AddPartitionsToTxn; earlier versions are for clients


class Unverified(BarnabasError):
    """The coordinator does not know of the partition, or could not be asked."""

    def __init__(self, wire: WireError, message: str) -> None:
        super().__init__(message)
        self.wire = wire  # type: ignore[misc]  # it is the coordinator that chooses


class Operation(enum.Enum):
    """The kind of request to the coordinator, and the errors that the client knows."""

    VERIFY = "verify"
    VERIFY_OR_ABORT = "verify, where the client knows TRANSACTION_ABORTABLE"
    ADD = "add"

    @classmethod
    def of_produce(cls, api_version: int) -> Operation:
        return cls.ADD if api_version > 11 else cls.VERIFY_OR_ABORT if api_version > 10 else cls.VERIFY

    @classmethod
    def of_offset_commit(cls, api_version: int) -> Operation:
        return cls.ADD if api_version > 4 else cls.VERIFY_OR_ABORT if api_version > 3 else cls.VERIFY


class Claim(NamedTuple):
    """A partition that a producer writes to, and the sequence of its batch."""

    place: TopicPartition
    replica: Replica
    sequence: int


Verdict = Guard | BarnabasError | None


async def verify(
    claims: Sequence[Claim],
    transactional_id: str,
    producer: Producer,
    operation: Operation,
    services: Services,
) -> list[Verdict]:
    """For each claim: the guard to append with (None where the transaction is open there), or the error.

    While the producer's last transaction is being ended, a request that adds partitions waits a little: the
    client would retry just as early, and a produce request is expensive to send again. The marker of that
    transaction may also be written during the request to the coordinator, which invalidates the guard: then
    the coordinator is asked again, with a new guard.
    """
    settings = services.settings
    adds = operation is Operation.ADD
    if not adds and not settings.boolean("transaction.partition.verification.enable"):
        return [TRUSTED] * len(claims)
    patience_ms = settings.integer("add.partitions.to.txn.retry.backoff.max.ms")
    deadline = services.clock.monotonic() + patience_ms / 1000
    backoffs = _backoffs(settings.integer("add.partitions.to.txn.retry.backoff.ms") / 1000)
    while True:
        verdicts = await _verify_once(claims, transactional_id, producer, operation, services)
        is_early = any(isinstance(one, Unverified) and one.wire is _CONCURRENT for one in verdicts)
        if not (adds and is_early) or services.clock.monotonic() >= deadline:
            return verdicts
        await services.clock.sleep(next(backoffs))


def _backoffs(longest_seconds: float) -> Iterator[float]:
    """The waits between attempts. The markers of a transaction are usually written within a few turns of the
    loop."""
    yield from (0, 0, 0)
    seconds = 0.001
    while True:
        yield min(seconds, longest_seconds)
        seconds *= 2


async def _verify_once(
    claims: Sequence[Claim],
    transactional_id: str,
    producer: Producer,
    operation: Operation,
    services: Services,
) -> list[Verdict]:
    verdicts = [_begin(claim, producer, operation, services) for claim in claims]
    asked = [
        claim.place for claim, verdict in zip(claims, verdicts, strict=True) if isinstance(verdict, Guard)
    ]
    if not asked:
        return verdicts
    refused = await _ask(asked, transactional_id, producer, operation, services)
    if operation is Operation.ADD:
        for claim, verdict in zip(claims, verdicts, strict=True):
            producers = claim.replica.log.producers
            if isinstance(verdict, Guard) and not producers.is_guarded(producer.id, verdict):
                late = Unverified(_CONCURRENT, "the marker of the last transaction was written meanwhile")
                refused.setdefault(claim.place, late)
    return [refused.get(claim.place, verdict) for claim, verdict in zip(claims, verdicts, strict=True)]


def _begin(claim: Claim, producer: Producer, operation: Operation, services: Services) -> Verdict:
    try:
        return claim.replica.log.producers.begin_verification(
            producer.id,
            producer.epoch,
            claim.sequence,
            starts_at_zero=operation is Operation.ADD,
            now_ms=services.clock.wall_ms(),
        )
    except BarnabasError as error:
        return error


async def _ask(
    places: Sequence[TopicPartition],
    transactional_id: str,
    producer: Producer,
    operation: Operation,
    services: Services,
) -> dict[TopicPartition, BarnabasError]:
    """The partitions that the coordinator refuses, with the errors."""
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    asked = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        verify_only=operation is not Operation.ADD,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=some) for name, some in topics.items()],
    )
    try:
        response = await services.peers.send_to_leader(
            _coordinator_of(transactional_id, services),
            AddPartitionsToTxnRequest(transactions=[asked]),
            AddPartitionsToTxnResponse,
            needs=_FIRST_OF_BROKERS,
        )
    except BarnabasError as error:
        return dict.fromkeys(places, Unverified(error.wire, str(error)))
    if response.error_code:  # the request failed as a whole
        code = _INVALID_STATE.code if response.error_code == _NOT_ALLOWED.code else response.error_code
        return dict.fromkeys(places, _refusal(code, operation))
    return {
        TopicPartition(topic.name, one.partition_index): _refusal(one.partition_error_code, operation)
        for result in response.results_by_transaction
        for topic in result.topic_results
        for one in topic.results_by_partition
        if one.partition_error_code
    }


def _coordinator_of(transactional_id: str, services: Services) -> TopicPartition:
    """The partition whose leader coordinates a transactional id. Without a leader, this broker is asked, and
    refuses."""
    topic = services.image.topic(TRANSACTION_STATE)
    partition = 0 if topic is None else partition_for(transactional_id, len(topic.partitions))
    return TopicPartition(TRANSACTION_STATE, partition)


def _refusal(code: int, operation: Operation) -> Unverified:
    error = WIRE_ERRORS.get(code, _UNKNOWN)
    if error is _FENCED:
        error = _INVALID_EPOCH
    elif error is _ABORTABLE and operation is Operation.VERIFY:
        error = _INVALID_STATE
    if error is _INVALID_STATE:
        return Unverified(error, "Partition was not added to the transaction")
    return Unverified(error, f"the transaction coordinator answered {error.name}")
