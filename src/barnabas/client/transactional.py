"""The requests of a transactional producer to its coordinators, in their order.

`transactions` decides which requests are allowed, and what an error means. Here: a transaction is ended only
after everything that was sent is settled, and a partition is written to only when it is part of the
transaction. One task at a time begins, ends, prepares or adds offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.client.accumulator import Accumulator
from barnabas.client.batches import Batch
from barnabas.client.cluster import Cluster
from barnabas.client.coordinator import Codes, Coordinator
from barnabas.client.coordinator_finder import CoordinatorType
from barnabas.client.errors import TimedOut, TransactionAborted, TransactionEnded
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer_config import ProducerConfig
from barnabas.client.sequences import ProducerIdentity
from barnabas.client.transactions import (
    LAST_EXPLICIT_END,
    TRANSACTION_VERSION,
    Extent,
    Phase,
    PreparedTransaction,
    Step,
    Transaction,
)
from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.protocol.schema import EVERY_VERSION

if TYPE_CHECKING:
    from barnabas.client.admin.group_offsets import CommittedOffset

P = TypeVar("P", bound=tuple[str, int])

logger = logging.getLogger("barnabas.client")

# the last versions for transaction.version 1 and before
_LAST_EXPLICIT_PRODUCE = 11
_LAST_EXPLICIT_OFFSETS = 4
_LAST_ADD_OF_CLIENTS = 3
_INIT_WITH_EPOCH = 3  # the first version of InitProducerId with the producer's id and epoch
_NOBODY = ProducerIdentity(-1, -1)


class _Answer(Protocol):
    error_code: int


class Transactional:
    """The transactions of one producer. `flush` returns when everything sent so far is settled; `wake` wakes
    the sender."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        accumulator: Accumulator,
        flush: Callable[[], Awaitable[None]],
        wake: Callable[[], None],
    ) -> None:
        assert config.transactional_id is not None
        self.state = Transaction(config.transactional_id)
        self._cluster, self._config, self._accumulator = cluster, config, accumulator
        self._flush, self._wake = flush, wake
        self._coordinator = Coordinator(cluster, CoordinatorType.TRANSACTION, config.transactional_id)
        self._groups: dict[str, Coordinator] = {}
        self._turn = asyncio.Lock()
        self._wanted: dict[TopicPartition, None] = {}
        self._adder: asyncio.Task[None] | None = None

    @property
    def _timeout_s(self) -> float:
        return self._config.max_block_ms / 1000

    @property
    def is_prepared(self) -> bool:
        return self.state.phase is Phase.PREPARED

    # ---- begin and end -----------------------------------------------------------------------------------

    async def initialise(self) -> ProducerIdentity:
        async with self._turn:
            self.state.check("initialise transactions", Phase.NEW)
            features = await self._coordinator.features(self._timeout_s)
            identity = await self._next_identity(_NOBODY)
            self._accumulator.restart(identity)
            self.state.initialised(identity, features.get(TRANSACTION_VERSION, 0))
            return identity

    async def commit(self) -> None:
        async with self._turn:
            self.state.check("commit", Phase.OPEN, Phase.PREPARED, Phase.COMMITTING)
            await self._settle()
            self.state.end(is_commit=True)
            await self._end(is_commit=True)

    async def abort(self) -> None:
        async with self._turn:
            self.state.end(is_commit=False)
            aborted = TransactionAborted("the transaction was aborted before this was written")
            self._accumulator.abandon(aborted)
            self._wanted.clear()
            if self._adder is not None:  # partitions added after the end would begin another transaction
                await asyncio.wait((self._adder,))
            await self._settle()
            await self._end(is_commit=False)

    async def abort_if_open(self) -> None:
        """Abort, unless a commit was requested: that may have succeeded."""
        if self.state.phase in (Phase.OPEN, Phase.FAILED, Phase.PREPARED, Phase.ABORTING):
            try:
                await self.abort()
            except BarnabasError as error:
                logger.warning("a transaction could not be aborted: %s", error)

    async def prepare(self) -> PreparedTransaction:
        async with self._turn:
            self.state.check("prepare the transaction", Phase.OPEN, Phase.PREPARED)
            await self._settle()
            return self.state.prepare()

    async def _settle(self) -> None:
        while not self._accumulator.is_empty:
            await self._flush()

    async def _end(self, *, is_commit: bool) -> None:
        state = self.state
        identity = state.identity
        if state.extent is not Extent.NOTHING and not state.is_forgotten:
            identity = await self._ask_end(identity, is_commit=is_commit)
            state.extent = Extent.NOTHING  # the next step may have to be repeated
        version = self._present_version()
        if state.needs_epoch or version > state.version:  # late requests must not join the next one
            identity = await self._next_identity(identity)
        if identity != state.identity:
            self._accumulator.restart(identity)
        self._accumulator.resume()
        state.ended(identity, version)

    async def _ask_end(self, identity: ProducerIdentity, *, is_commit: bool) -> ProducerIdentity:
        state = self.state
        request = EndTxnRequest(
            transactional_id=state.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=is_commit,
        )
        what = f"cannot {'commit' if is_commit else 'abort'} the transaction of {state.transactional_id!r}"
        at_most = EVERY_VERSION if state.is_implicit else LAST_EXPLICIT_END
        unanswered = self._coordinator.unanswered
        try:
            answer = await self._coordinator.ask(
                request, EndTxnResponse, _code(what), self._timeout_s, at_most=at_most
            )
        except TimedOut:
            state.may_end_late()
            raise  # it may have been done: to be repeated
        except TransactionEnded as error:
            if is_commit:
                state.failed(error, Step.COMMIT)
                raise TransactionAborted(
                    f"{what}: its coordinator has aborted it, which it does with those that last longer than "
                    f"transaction_timeout_ms={self._config.transaction_timeout_ms}"
                ) from error
            if state.extent is Extent.MAYBE:
                return identity  # there was nothing to abort
            self._die(error)
            raise
        except BarnabasError as error:
            self._failed(error, Step.COMMIT if is_commit else Step.ABORT)
            if state.phase is Phase.FAILED:
                state.check("commit")
            raise
        if self._coordinator.unanswered > unanswered:
            state.may_end_late()
        return ProducerIdentity(answer.producer_id, answer.producer_epoch) if state.is_implicit else identity

    async def _next_identity(self, identity: ProducerIdentity) -> ProducerIdentity:
        """The first identity, which fences an earlier producer, or the next one."""
        request = InitProducerIdRequest(
            transactional_id=self.state.transactional_id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
        )
        needs = 0 if identity == _NOBODY else _INIT_WITH_EPOCH
        what = f"no producer id for {self.state.transactional_id!r}"
        try:
            answer = await self._coordinator.ask(
                request, InitProducerIdResponse, _code(what), self._timeout_s, needs=needs
            )
        except TimedOut:
            raise
        except BarnabasError as error:
            self._failed(error, Step.INIT)
            raise
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def _present_version(self) -> int:
        """The transaction.version by the last connection to the coordinator; for one producer it never goes
        back."""
        return max(self.state.version, self._coordinator.last_features.get(TRANSACTION_VERSION, 0))

    # ---- partitions and offsets --------------------------------------------------------------------------

    def may_write(self, partition: TopicPartition) -> bool:
        """Whether a batch may be sent to the partition now; if not, the partition is being added."""
        if self.state.may_write(partition):
            return True
        if self.state.phase is Phase.OPEN:
            self._wanted[partition] = None
            if self._adder is None:
                self._adder = asyncio.get_running_loop().create_task(self._add_wanted())
        return False

    def sent(self) -> int:
        """A batch is sent; returns the newest version for that."""
        if not self.state.is_implicit:
            return _LAST_EXPLICIT_PRODUCE
        self.state.added()
        return EVERY_VERSION

    def settled(self, batch: Batch) -> None:
        """A batch is settled. If it has failed, the end of the transaction reports it, whether or not the
        caller looks at the error."""
        if batch.failure is not None:
            batch.forget_waiters()
            self._failed(batch.failure, Step.PRODUCE, was_sent=batch.attempts > 0)

    def torn(self, why: BaseException) -> None:
        """Some rows of a table are not part of the transaction, which must fail."""
        error = TransactionAborted(f"a table was sent in part only: {str(why) or type(why).__name__}")
        error.__cause__ = why
        self._failed(error, Step.PRODUCE, was_sent=False)

    async def _add_wanted(self) -> None:
        try:
            while self._wanted and self.state.phase is Phase.OPEN:
                partitions = list(self._wanted)
                await self._add(partitions)
                for each in partitions:
                    self._wanted.pop(each, None)
                self._wake()
        except BarnabasError as error:
            self._wanted.clear()
            self._failed(error, Step.ADD)
        finally:
            self._adder = None

    async def _add(self, partitions: list[TopicPartition]) -> None:
        state = self.state
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=state.transactional_id,
            v3_and_below_producer_id=state.identity.producer_id,
            v3_and_below_producer_epoch=state.identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=all_) for name, all_ in topics.items()
            ],
        )

        def codes(answer: AddPartitionsToTxnResponse) -> Codes:
            for topic in answer.results_by_topic_v3_and_below:
                for each in topic.results_by_partition:
                    at = TopicPartition(topic.name, each.partition_index)
                    yield f"cannot add {at} to a transaction", each.partition_error_code

        state.asked()
        await self._coordinator.ask(
            request, AddPartitionsToTxnResponse, codes, self._timeout_s, at_most=_LAST_ADD_OF_CLIENTS
        )
        state.added(*partitions)

    async def send_offsets(self, offsets: Mapping[P, int | CommittedOffset], group_id: str) -> None:
        async with self._turn:
            self.state.check("send offsets", Phase.OPEN)
            if not offsets:
                return
            self.state.asked()
            try:
                if not self.state.is_implicit:
                    await self._add_group(group_id)
                await self._commit_offsets(offsets, group_id)
            except BarnabasError as error:
                self._failed(error, Step.OFFSETS)
                raise
            self.state.added()

    async def _add_group(self, group_id: str) -> None:
        state = self.state
        request = AddOffsetsToTxnRequest(
            transactional_id=state.transactional_id,
            producer_id=state.identity.producer_id,
            producer_epoch=state.identity.epoch,
            group_id=group_id,
        )
        what = f"cannot add group {group_id!r} to a transaction"
        await self._coordinator.ask(request, AddOffsetsToTxnResponse, _code(what), self._timeout_s)
        state.added()

    async def _commit_offsets(self, offsets: Mapping[P, int | CommittedOffset], group_id: str) -> None:
        state = self.state
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), given in offsets.items():
            topics.setdefault(topic, []).append(_committed(partition, given))
        request = TxnOffsetCommitRequest(
            transactional_id=state.transactional_id,
            group_id=group_id,
            producer_id=state.identity.producer_id,
            producer_epoch=state.identity.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=all_) for name, all_ in topics.items()],
        )

        def codes(answer: TxnOffsetCommitResponse) -> Codes:
            for topic in answer.topics:
                for each in topic.partitions:
                    at = TopicPartition(topic.name, each.partition_index)
                    yield f"cannot commit the offset of {at} for group {group_id!r}", each.error_code

        group = self._groups.setdefault(group_id, Coordinator(self._cluster, CoordinatorType.GROUP, group_id))
        at_most = EVERY_VERSION if state.is_implicit else _LAST_EXPLICIT_OFFSETS
        await group.ask(request, TxnOffsetCommitResponse, codes, self._timeout_s, at_most=at_most)

    # ---- errors and close --------------------------------------------------------------------------------

    def _failed(self, error: Exception, step: Step, *, was_sent: bool = True) -> None:
        """The transaction has failed: send nothing more of it."""
        phase = self.state.phase
        self.state.failed(error, step, was_sent=was_sent)
        if self.state.phase is not phase:
            logger.info("a transaction of %r has failed: %s", self.state.transactional_id, error)
            self._accumulator.abandon(error)
            self._wake()

    def _die(self, error: Exception) -> None:
        self.state.died(error)
        self._accumulator.abandon(error)

    def close(self) -> None:
        """Send no more requests."""
        if self._adder is not None:
            self._adder.cancel()


def _code(what: str) -> Callable[[_Answer], Codes]:
    return lambda answer: ((what, answer.error_code),)


def _committed(partition: int, given: int | CommittedOffset) -> TxnOffsetCommitRequestPartition:
    if isinstance(given, int):
        return TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=given, committed_metadata=""
        )
    return TxnOffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=given.offset,
        committed_leader_epoch=-1 if given.leader_epoch is None else given.leader_epoch,
        committed_metadata=given.metadata,
    )
