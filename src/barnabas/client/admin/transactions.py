"""Transactions: listed, described and fenced; hanging ones found and aborted.

A transaction hangs if a partition has it open and its coordinator does not know it, or not with this
partition: it will never be ended, and read_committed consumers wait there for ever. It is aborted by writing
a marker into the partition in place of the coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.client.admin.coordinators import Coordinators, answers_of
from barnabas.client.admin.engine import error_of
from barnabas.client.admin.records import ActiveProducer, Records
from barnabas.client.coordinator_finder import CoordinatorType
from barnabas.client.errors import (
    BrokerError,
    ProducerFenced,
    TransactionEnded,
    UnknownTransactionalId,
)
from barnabas.client.metadata import TopicPartition
from barnabas.client.transactions import IMPLICIT, LAST_EXPLICIT_END, PreparedTransaction
from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.protocol.schema import EVERY_VERSION

_DURATION_FROM, _PATTERN_FROM = 1, 2  # versions of ListTransactions
_AT_REST = frozenset(("Empty", "CompleteCommit", "CompleteAbort", "Dead"))
_PARTITIONS_A_QUESTION = 500
_NO_FILTER = -1
_NO_PRODUCER = -1
_LEAST_TIMEOUT_MS = 1  # of a producer that will never write; no broker has a lower maximum


class TransactionListing(NamedTuple):
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class TransactionDescription(NamedTuple):
    """A transactional id; `start_time_ms` is None without a transaction under way. `partitions` are those in
    it, or those that still lack its marker."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: list[TopicPartition]
    coordinator: int


class OpenTransaction(NamedTuple):
    """A transaction that a partition has open."""

    partition: TopicPartition
    producer: ActiveProducer


class FencedProducer(NamedTuple):
    """The identity of a transactional id after its producer was fenced."""

    producer_id: int
    producer_epoch: int


class Transactions(Coordinators, Records):
    """The part of an admin for transactions."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        older_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids that coordinators know, or those that match every given filter; `pattern` is
        a regular expression (RE2) for the whole id. Unknown states match nothing."""
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=_NO_FILTER if older_than_ms is None else older_than_ms,
            transactional_id_pattern=pattern,
        )
        needed = 0 if older_than_ms is None else _DURATION_FROM
        answers = await self._ask_brokers(
            request,
            ListTransactionsResponse,
            lambda answer: error_of(answer.error_code, "cannot list transactions"),
            from_version=needed if pattern is None else _PATTERN_FROM,
        )
        return sorted(
            TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node_id)
            for node_id, answer in answers.items()
            for each in answer.transaction_states
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """The state of transactional ids; UnknownTransactionalId if a coordinator does not know one."""
        return answers_of(await self._described(transactional_ids))

    async def _described(self, ids: Iterable[str]) -> dict[str, TransactionDescription | BrokerError]:
        async def ask(node_id: int, asked: list[str]) -> dict[str, TransactionDescription | BrokerError]:
            request = DescribeTransactionsRequest(transactional_ids=asked)
            response = await self.cluster.ask(request, DescribeTransactionsResponse, node_id=node_id)
            return {
                each.transactional_id: error_of(
                    each.error_code, f"cannot describe transactional id {each.transactional_id!r}"
                )
                or _description(each, node_id)
                for each in response.transaction_states
            }

        return await self._ask_coordinators(CoordinatorType.TRANSACTION, ids, ask)

    async def find_hanging_transactions(
        self, partitions: Iterable[tuple[str, int]], open_for_ms: int, *, node_id: int | None = None
    ) -> list[OpenTransaction]:
        """The transactions that partitions have had open for longer than that and that no coordinator will
        ever end. With `node_id` that broker's replicas are asked, otherwise the leaders."""
        wanted = [TopicPartition(*each) for each in partitions]
        candidates: list[OpenTransaction] = []
        for begin in range(0, len(wanted), _PARTITIONS_A_QUESTION):
            some = wanted[begin : begin + _PARTITIONS_A_QUESTION]
            now_ms = self._clock.wall_ms()
            for at, producers in (await self.describe_producers(some, node_id=node_id)).items():
                candidates += [
                    OpenTransaction(at, each)
                    for each in producers
                    if each.transaction_start_offset is not None
                    and now_ms - each.last_timestamp_ms > open_for_ms
                ]
        return await self.unknown_to_coordinators(candidates)

    async def unknown_to_coordinators(self, candidates: Iterable[OpenTransaction]) -> list[OpenTransaction]:
        """The open transactions that no coordinator knows, or not with that partition."""
        found = list(candidates)
        producer_ids = sorted({each.producer.producer_id for each in found})
        if not producer_ids:
            return []
        listed = await self.list_transactions(producer_ids=producer_ids)
        described = await self._described(each.transactional_id for each in listed)
        expected: dict[int, list[TopicPartition]] = {}
        for each in listed:
            description = described[each.transactional_id]
            if isinstance(description, TransactionDescription):
                expected[each.producer_id] = description.partitions
            elif not isinstance(description, UnknownTransactionalId):
                raise description
        return [each for each in found if each.partition not in expected.get(each.producer.producer_id, [])]

    async def abort_transaction(
        self, partition: tuple[str, int], producer_id: int, producer_epoch: int, coordinator_epoch: int | None
    ) -> None:
        """Abort a hanging transaction in a partition, with the values of `describe_producers`."""
        at = TopicPartition(*partition)
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=at.topic, partition_indexes=[at.partition])],
            # unknown for a producer whose first transaction hangs; no epoch is lower than 0
            coordinator_epoch=max(0, coordinator_epoch or 0),
        )

        async def ask(node_id: int, _: list[TopicPartition]) -> dict[TopicPartition, bool | BrokerError]:
            request = WriteTxnMarkersRequest(markers=[marker])
            response = await self._ask_leader(node_id, request, WriteTxnMarkersResponse)
            return {
                TopicPartition(topic.name, each.partition_index): error_of(
                    each.error_code, f"cannot abort the transaction of producer {producer_id} in {at}"
                )
                or True
                for result in response.markers
                for topic in result.topics
                for each in topic.partitions
            }

        await self._ask_leaders([at], ask)

    async def end_transaction(self, prepared: PreparedTransaction, *, commit: bool = True) -> None:
        """End a transaction that a producer has prepared; it may be called repeatedly.

        TransactionEnded if it has been ended the other way before; ProducerFenced if a newer producer has the
        transactional id, which has ended it: aborted, if it was not committed before.
        """
        if prepared.is_empty:
            return
        name = prepared.transactional_id
        what = f"cannot {'commit' if commit else 'abort'} the transaction of {name!r}"
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.epoch,
            committed=commit,
        )
        at_most = EVERY_VERSION if prepared.version >= IMPLICIT else LAST_EXPLICIT_END

        async def ask(node_id: int, _: list[str]) -> dict[str, bool | BrokerError]:
            response = await self.cluster.ask(request, EndTxnResponse, node_id=node_id, at_most=at_most)
            return {name: error_of(response.error_code, what) or True}

        (answer,) = (await self._ask_coordinators(CoordinatorType.TRANSACTION, [name], ask)).values()
        if isinstance(answer, BrokerError):
            raise await self._explained(answer, prepared)

    async def _explained(self, error: BrokerError, prepared: PreparedTransaction) -> BrokerError:
        """The same error, with the current state of the transactional id."""
        if not isinstance(error, (ProducerFenced, TransactionEnded)):
            return error
        try:
            known = (await self.describe_transactions([prepared.transactional_id]))[prepared.transactional_id]
        except BarnabasError:  # the state only helps to explain
            return error
        return type(error)(error.error, error.what, _fate(known, prepared))

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, FencedProducer]:
        """Abort the transactions of these transactional ids, and fence their producers for good."""

        async def ask(node_id: int, asked: list[str]) -> dict[str, FencedProducer | BrokerError]:
            answers: dict[str, FencedProducer | BrokerError] = {}
            for each in asked:
                request = InitProducerIdRequest(
                    transactional_id=each,
                    transaction_timeout_ms=_LEAST_TIMEOUT_MS,
                    producer_id=_NO_PRODUCER,
                    producer_epoch=_NO_PRODUCER,
                )
                response = await self.cluster.ask(request, InitProducerIdResponse, node_id=node_id)
                answers[each] = error_of(
                    response.error_code, f"cannot fence the producer of {each!r}"
                ) or FencedProducer(response.producer_id, response.producer_epoch)
            return answers

        return answers_of(await self._ask_coordinators(CoordinatorType.TRANSACTION, transactional_ids, ask))


def _fate(known: TransactionDescription, prepared: PreparedTransaction) -> str:
    now = f"producer {known.producer_id} epoch {known.producer_epoch}, {known.state}"
    was = f"producer {prepared.producer_id} epoch {prepared.epoch}"
    is_next = known.producer_id == prepared.producer_id and known.producer_epoch <= prepared.epoch + 1
    if is_next and known.state in ("PrepareAbort", "CompleteAbort"):
        return (
            f"it was aborted, for taking over {known.timeout_ms} ms or by somebody's wish; {was}, now {now}"
        )
    if is_next and known.state in ("PrepareCommit", "CompleteCommit"):
        return f"it was committed; {was}, now {now}"
    return f"a newer producer has taken the transactional id; {was}, now {now}"


def _description(answer: TransactionState, node_id: int) -> TransactionDescription:
    # the response has the start time of a transaction that has ended, too
    is_under_way = answer.transaction_start_time_ms >= 0 and answer.transaction_state not in _AT_REST
    return TransactionDescription(
        answer.transactional_id,
        answer.transaction_state,
        answer.producer_id,
        answer.producer_epoch,
        answer.transaction_timeout_ms,
        answer.transaction_start_time_ms if is_under_way else None,
        sorted(TopicPartition(topic.topic, each) for topic in answer.topics for each in topic.partitions),
        node_id,
    )
