"""Verifies the transactional batches of a produce request before they are appended.

All of them are of one producer, and of the transactional id in the request. The coordinator is asked once for
all partitions in which they begin the transaction. If it cannot answer now, the client gets an error that
makes it send the batch again without looking for another leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.verification import Claim, Operation, Unverified, Verdict, verify
from barnabas.broker.replicas.replica import NotEnoughReplicas
from barnabas.coordination.effects import Producer, TopicPartition
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.metadata.names import is_internal
from barnabas.records.batch import HEADER_BYTES, NO_PRODUCER_ID, BatchHeader

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.services import Services
    from barnabas.metadata.parts import TopicImage
    from barnabas.protocol.messages.produce import ProduceRequest

_WORTH_ANOTHER_TRY = {
    wire_error(name)
    for name in (
        "NETWORK_EXCEPTION",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        # the coordinator's metadata lacks one of the partitions, which exist for their leader
        "UNKNOWN_TOPIC_OR_PARTITION",
        "OPERATION_NOT_ATTEMPTED",
    )
}
_CONCURRENT = wire_error("CONCURRENT_TRANSACTIONS")

# by topic and partition; batches outside of transactions have none
Verdicts = dict[tuple[str, int], Verdict]


class TransactionalIdNotAuthorized(BarnabasError):
    """A request with a transactional batch names no transactional id."""

    wire = wire_error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")


class InvalidProducerIdMapping(BarnabasError):
    """A request has transactional batches of several producers."""

    wire = wire_error("INVALID_PRODUCER_ID_MAPPING")


async def verify_produced(
    request: ProduceRequest, context: RequestContext, services: Services, *, by_id: bool
) -> Verdicts:
    """The verdict on each transactional batch; raises an error that applies to the whole request."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        raise TransactionalIdNotAuthorized("records of a transaction come without a transactional id")
    found = [
        (topic.name, topic.topic_id, one.index, header)
        for topic in request.topic_data
        for one in topic.partition_data
        if (header := _transactional(one.records)) is not None
    ]
    producers = {(header.producer_id, header.producer_epoch) for *_, header in found}
    if len(producers) > 1:
        raise InvalidProducerIdMapping("Transactional records contained more than one producer ID")
    claims = []
    for name, topic_id, index, header in found:
        claim = await _claim(name, topic_id, by_id, index, header, services)
        if claim is not None:
            claims.append(claim)
    if not claims:
        return {}
    operation = Operation.of_produce(context.api_version)
    verdicts = await verify(claims, transactional_id, Producer(*producers.pop()), operation, services)
    return {
        claim.place: _translated(verdict, operation) for claim, verdict in zip(claims, verdicts, strict=True)
    }


def _transactional(batch: object) -> BatchHeader | None:
    if not isinstance(batch, memoryview) or len(batch) < HEADER_BYTES:
        return None
    header = BatchHeader.parse(batch)
    return header if header.is_transactional and header.producer_id != NO_PRODUCER_ID else None


async def _claim(
    name: str, topic_id: bytes, by_id: bool, index: int, header: BatchHeader, services: Services
) -> Claim | None:
    """The claim of a batch; None if the append will be refused for another reason."""
    try:
        topic: TopicImage = services.replicas.topic(name, topic_id, by_id=by_id)
        if is_internal(topic.name):
            return None
        replica = await services.replicas.leader(topic, index)
    except BarnabasError:
        return None
    return Claim(TopicPartition(topic.name, index), replica, header.base_sequence)


def _translated(verdict: Verdict, operation: Operation) -> Verdict:
    if not isinstance(verdict, Unverified):
        return verdict
    is_early = verdict.wire is _CONCURRENT and operation is not Operation.ADD
    if verdict.wire in _WORTH_ANOTHER_TRY or is_early:
        return NotEnoughReplicas(
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {verdict.wire.name}"
        )
    return verdict
