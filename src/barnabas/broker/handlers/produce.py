"""Produce: appends one batch a partition.

Versions before 3 had record formats that no longer exist. Topics have ids from 13 on. With acks=0 there is no
response; an error then closes the connection, the only way to tell such a client.

Partitions are appended one after another, then the response waits for all of them together (acks=all). The
client's next produce request begins meanwhile, as soon as this one has been appended.

The first batch of a transaction in a partition is verified with the coordinator; from 12 on that adds the
partition to the transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.cluster.leader_hints import point_to_leaders
from barnabas.broker.connections.later import LaterResponse
from barnabas.broker.connections.requests import PARTITIONS_A_TURN, RequestContext
from barnabas.core.errors import (
    BarnabasError,
    InvalidRecord,
    InvalidTimestamp,
    UnsupportedCompression,
    wire_error,
)
from barnabas.core.network import ConnectionLost
from barnabas.metadata.names import is_internal
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.coordinators.produced import Verdicts
    from barnabas.broker.services import Services
    from barnabas.log.partition import Appended
    from barnabas.metadata.parts import TopicImage

logger = logging.getLogger("barnabas.produce")

ALL = -1
_TOPIC_IDS_FROM = 13
_ZSTD_FROM = 7
_TRANSACTIONAL = 0x10
_ATTRIBUTES_LOW_BYTE = 22  # offset within a batch
_CODEC_MASK, _ZSTD = 0x07, 4
_RECORDS_IN_MESSAGE = 3


class InvalidAcks(BarnabasError):
    """acks is none of 0, 1 and -1 (all)."""

    wire = wire_error("INVALID_REQUIRED_ACKS")


class InvalidTopic(BarnabasError):
    """A topic that clients may not write to."""

    wire = wire_error("INVALID_TOPIC_EXCEPTION")


class RequestTimedOut(BarnabasError):
    """The in-sync replicas did not follow in time; the records are in the log all the same."""

    wire = wire_error("REQUEST_TIMED_OUT")


_Wait = tuple[asyncio.Future[None], PartitionProduceResponse]


class Committing(LaterResponse):
    """A response that waits until the in-sync replicas have the records, or the request times out."""

    __slots__ = ("_finish", "_left", "_timeout_ms", "_timer", "_waits")

    def __init__(self, waits: list[_Wait], timeout_ms: int, finish: Callable[[], ProduceResponse]) -> None:
        super().__init__()
        self._waits = waits
        self._finish = finish
        self._left = len(waits)
        self._timeout_ms = timeout_ms
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0, timeout_ms) / 1000, self._end)
        for future, _ in waits:
            future.add_done_callback(self._one_less)

    def _one_less(self, _: asyncio.Future[None]) -> None:
        self._left -= 1
        if not self._left and not self.is_done:
            self._end()

    def _end(self) -> None:
        self._timer.cancel()
        for future, response in self._waits:
            failure: BarnabasError | None = None
            if not future.done():
                future.cancel()
                failure = RequestTimedOut(f"not every in-sync replica followed within {self._timeout_ms} ms")
            elif isinstance(error := future.exception(), BarnabasError):
                failure = error
            if failure is not None:
                response.error_code = failure.wire.code
                response.error_message = str(failure)
                response.base_offset = -1
        self._is_complete()

    def finish(self) -> ProduceResponse:
        return self._finish()

    def give_up(self) -> None:
        self.is_done = True
        self._timer.cancel()
        _give_up(self._waits)


def _give_up(waits: list[_Wait]) -> None:
    for future, _ in waits:
        future.cancel()


async def handle(
    request: ProduceRequest, context: RequestContext, services: Services
) -> ProduceResponse | None:
    begun = await begin(request, context, services)
    if isinstance(begun, Committing):
        await begun.wait()
        return begun.finish()
    return begun


async def begin(
    request: ProduceRequest, context: RequestContext, services: Services
) -> ProduceResponse | Committing | None:
    """Append everything; the response is complete at once if there is nothing to wait for."""
    waits: list[_Wait] = []
    by_id = context.api_version >= _TOPIC_IDS_FROM
    response = ProduceResponse(responses=[], throttle_time_ms=0)
    answers = response.responses
    verdicts: Verdicts | BarnabasError = {}
    if request.transactional_id is not None or _has_transactions(request):
        verdicts = await _verify(request, context, services, by_id)
    since_turn = 0
    try:
        for topic_data in request.topic_data:
            partitions = await _append_topic(topic_data, by_id, request, context, services, waits, verdicts)
            since_turn += len(partitions)
            if since_turn >= PARTITIONS_A_TURN:
                since_turn = 0
                await asyncio.sleep(0)
            answers.append(
                TopicProduceResponse(
                    name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=partitions
                )
            )
    except BaseException:
        _give_up(waits)
        raise
    if waits:
        return Committing(waits, request.timeout_ms, lambda: _finished(response, context, services))
    if request.acks == 0:
        _fail_silently(response)
        return None
    return _finished(response, context, services)


def _finished(response: ProduceResponse, context: RequestContext, services: Services) -> ProduceResponse:
    failed = (
        (topic.name, topic.topic_id, one.index, one)
        for topic in response.responses
        for one in topic.partition_responses
        if one.error_code
    )
    response.node_endpoints = point_to_leaders("Produce", failed, context, services)
    return response


def _has_transactions(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for one in topic.partition_data:
            batch = one.records
            if (
                isinstance(batch, memoryview)
                and len(batch) > _ATTRIBUTES_LOW_BYTE
                and batch[_ATTRIBUTES_LOW_BYTE] & _TRANSACTIONAL
            ):
                return True
    return False


async def _verify(
    request: ProduceRequest, context: RequestContext, services: Services, by_id: bool
) -> Verdicts | BarnabasError:
    """The verdict on each batch, or an error for all of them."""
    from barnabas.broker.coordinators.produced import verify_produced  # most clients have no transactions

    try:
        return await verify_produced(request, context, services, by_id=by_id)
    except BarnabasError as error:
        return error


async def _append_topic(
    data: TopicProduceData,
    by_id: bool,
    request: ProduceRequest,
    context: RequestContext,
    services: Services,
    waits: list[_Wait],
    verdicts: Verdicts | BarnabasError,
) -> list[PartitionProduceResponse]:
    try:
        if isinstance(verdicts, BarnabasError):
            raise verdicts
        _check(request.acks)
        topic = services.replicas.topic(data.name, data.topic_id, by_id=by_id)
        if is_internal(topic.name) and context.client_id != "__admin_client":
            raise InvalidTopic(f"{topic.name} is internal: clients do not write to it")
    except BarnabasError as error:
        return [_failed(data.name, one.index, error) for one in data.partition_data]
    acks, knows_zstd = request.acks, context.api_version >= _ZSTD_FROM
    answers: list[PartitionProduceResponse] = []
    for number, one in enumerate(data.partition_data, 1):
        answers.append(await _append(topic, one, acks, knows_zstd, services, waits, verdicts))
        if number % PARTITIONS_A_TURN == 0:
            await asyncio.sleep(0)
    return answers


async def _append(
    topic: TopicImage,
    data: PartitionProduceData,
    acks: int,
    knows_zstd: bool,
    services: Services,
    waits: list[_Wait],
    verdicts: Verdicts,
) -> PartitionProduceResponse:
    index, batch = data.index, data.records
    try:
        replica = await services.replicas.leader(topic, index)
        replica.traffic.produces += 1
        if not isinstance(batch, memoryview) or len(batch) <= _ATTRIBUTES_LOW_BYTE:
            raise InvalidRecord("a produce request carries one batch of records a partition")
        if not knows_zstd and batch[_ATTRIBUTES_LOW_BYTE] & _CODEC_MASK == _ZSTD:
            raise UnsupportedCompression(f"zstd came with version {_ZSTD_FROM} of Produce")
        verdict = verdicts.get((topic.name, index)) if verdicts else None
        if isinstance(verdict, BarnabasError):
            raise verdict
        if services.replicas.refused:
            services.replicas.refused.check(topic.id, index, batch)
        appended: Appended = await replica.append(batch, all_in_sync=acks == ALL, guard=verdict)
    except BarnabasError as error:
        services.replicas.traffic_of(topic).refused_produce(error, len(batch or b""))
        if isinstance(batch, memoryview):
            services.replicas.note_refused(topic.id, index, batch, error)
        return _failed(topic.name, index, error)
    response = PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=appended.first_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )
    if acks == ALL:
        if replica.log.high_watermark <= appended.last_offset:
            waits.append((replica.committed(appended.last_offset + 1), response))
        elif not replica.is_committed_by_enough:
            return _failed(topic.name, index, replica.not_enough_after_append())
    return response


def _check(acks: int) -> None:
    if not -1 <= acks <= 1:
        raise InvalidAcks(f"acks={acks}; it must be 0, 1 or -1 (all)")


def _failed(topic: str, index: int, error: BarnabasError) -> PartitionProduceResponse:
    response = PartitionProduceResponse(
        index=index, error_code=error.wire.code, base_offset=-1, error_message=error.told
    )
    if error.record_faults:
        named = f"{topic}-{index}"
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=one.record_index, batch_index_error_message=one.told(named))
            for one in error.record_faults
        ]
        response.error_message = _rejected(error, response.record_errors)
    return response


def _rejected(error: BarnabasError, records: list[BatchIndexAndErrorMessage]) -> str:
    """Kafka's message for a batch with invalid records."""
    if isinstance(error, InvalidTimestamp):
        return "One or more records have been rejected due to invalid timestamp"
    first = ", ".join(
        f"RecordError(batchIndex={one.batch_index}, message='{one.batch_index_error_message}')"
        for one in records[:_RECORDS_IN_MESSAGE]
    )
    return (
        f"One or more records have been rejected due to {len(records)} record errors in total, "
        f"and only showing the first three errors at most: [{first}]"
    )


def _fail_silently(response: ProduceResponse) -> None:
    failed = [p for topic in response.responses for p in topic.partition_responses if p.error_code]
    if failed:
        logger.warning("a connection is closed: acks=0, and an append failed: %s", failed[0].error_message)
        raise ConnectionLost(f"acks=0, and an append failed: {failed[0].error_message}")
