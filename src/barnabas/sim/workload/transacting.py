"""A transactional producer of raw requests, in one of three ways (see Way): what Kafka's clients do, and
worse.

A request is sent again, the same, until it is answered; an answer that says that this producer is over ends
its life (`LifeOver`), and the next one begins with InitProducerId. In the old ways a request that is still
under way may land in the next transaction, of the same epoch: so after one that was not answered, the life
ends with the transaction. KIP-890 makes that needless, and in the new way requests are sent late on
purpose.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from barnabas.client.errors import BrokerNotReachable
from barnabas.core.errors import BarnabasError
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.protocol.schema import Message
from barnabas.records.builder import BatchBuilder
from barnabas.sim.coordination_scenario import LoopPlan
from barnabas.sim.group_events import CommitDone, CommitRefused, CommitSent, Place
from barnabas.sim.history import ClientError
from barnabas.sim.transaction_events import (
    LifeBegan,
    TxnAnswered,
    TxnBegan,
    TxnEnded,
    TxnEnding,
    TxnWriting,
    TxnWritten,
)
from barnabas.sim.workload.client import MARK_END, Client
from barnabas.sim.workload.coordinators import GROUP, TRANSACTION, TROUBLE, Asking, name_of
from barnabas.sim.workload.membership import Member

M = TypeVar("M", bound=Message)

RETRIED = (*TROUBLE, "CONCURRENT_TRANSACTIONS")
TRIES, INIT_TRIES = 8, 60
AGAIN_S = 0.2
TOPIC_TIMEOUT_S = 4.0
LEADER_MOVED = ("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION")
ADDED_BY_CLIENTS = 3  # the last version of AddPartitionsToTxn that is for them
ADD_OFFSETS = 3


class LifeOver(BarnabasError):
    """This producer cannot go on; `is_refused`: the broker said so, in no uncertain terms."""

    def __init__(self, why: str, *, is_refused: bool = False) -> None:
        super().__init__(why)
        self.is_refused = is_refused


class TransactionalProducer:
    """One life. `txn` is the transaction it is in; "" outside of one."""

    def __init__(self, client: Client, asking: Asking, plan: LoopPlan, number: int) -> None:
        self._client, self._asking, self._plan, self._way = client, asking, plan, plan.way
        self.life = f"{client.name}~{number}"
        self.txn = ""
        self._producer_id, self._epoch = -1, -1
        self._sequences: dict[Place, int] = {}
        self._added: dict[object, None] = {}
        self._transactions = self._marks = 0
        self._is_unsure = False

    async def begin_life(self) -> None:
        """InitProducerId: whoever had this transactional id before is over."""
        client, plan = self._client, self._plan
        request = InitProducerIdRequest(
            transactional_id=plan.transactional_id, transaction_timeout_ms=plan.timeout_ms
        )

        async def init() -> str:
            asked_at = client.now
            answer = await self._ask(request, InitProducerIdResponse, self._way.init)
            error = name_of(answer.error_code, "InitProducerId")
            if not error:
                self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                who = (plan.transactional_id, self.life, self._producer_id, self._epoch)
                client.history.add(LifeBegan(client.now, asked_at, *who))
            return error

        await self._until_answered("InitProducerId", init, INIT_TRIES)
        self._is_unsure = False

    def begin(self) -> None:
        """A transaction."""
        client = self._client
        self._transactions += 1
        self.txn = f"{self.life}#{self._transactions}"
        self._added.clear()
        self._is_unsure = False
        client.history.add(TxnBegan(client.now, self.txn, self._plan.transactional_id, *self._who))

    @property
    def _who(self) -> tuple[str, int, int]:
        return self.life, self._producer_id, self._epoch

    # ---- writing -----------------------------------------------------------------------------------------

    async def write(self, place: Place, sources: Sequence[str]) -> None:
        """One batch, of a record for each source."""
        if not self._way.is_implicit:
            await self._add(place)
        sequence = self._sequences.get(place, 0)
        request, marks = self._batch(place, sources, sequence)

        async def produce() -> str:
            return await self._produce(request, self.txn, place, marks)

        await self._until_answered("Produce", produce)
        self._sequences[place] = sequence + len(sources)

    def write_late(self, place: Place, delay_s: float) -> None:
        """The last batch of this transaction for that partition comes late; nobody waits for it."""
        request, marks = self._batch(place, [""], self._sequences.get(place, 0))
        txn, who = self.txn, self._who

        async def produce() -> str:
            return await self._produce(request, txn, place, marks)

        self._client.process.spawn(self._late("late Produce", produce, who, delay_s))

    def _batch(
        self, place: Place, sources: Sequence[str], sequence: int
    ) -> tuple[ProduceRequest, tuple[str, ...]]:
        client, (topic, partition) = self._client, place
        builder = BatchBuilder(
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        marks = []
        for source in sources:
            self._marks += 1
            mark = f"{self.txn}/{self._marks}"
            client.history.add(TxnWriting(client.now, self.txn, mark, source, topic, partition))
            builder.append(client.clock.wall_ms(), None, mark.encode() + MARK_END + source.encode())
            marks.append(mark)
        data = PartitionProduceData(index=partition, records=bytes(builder.build()))
        request = ProduceRequest(
            transactional_id=self._plan.transactional_id,
            acks=-1,
            timeout_ms=3_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        return request, tuple(marks)

    async def _produce(self, request: ProduceRequest, txn: str, place: Place, marks: tuple[str, ...]) -> str:
        client, cluster = self._client, self._asking.cluster
        await cluster.topic(place[0], TOPIC_TIMEOUT_S)
        leader = cluster.leader(*place)
        if leader is None:
            cluster.refresh_soon()
            raise BrokerNotReachable(f"nobody leads {place[0]}-{place[1]}")
        asked_at = client.now
        answer = await cluster.ask(
            request, ProduceResponse, node_id=leader.node_id, at_most=self._way.produce
        )
        written: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        error = name_of(written.error_code, "Produce")
        if not error:
            client.history.add(TxnWritten(client.now, asked_at, txn, *place, written.base_offset, marks))
        elif error in LEADER_MOVED:
            cluster.refresh_soon()
        return error

    async def _add(self, place: Place) -> None:
        if place in self._added:
            return
        topic = AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._plan.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[topic],
        )

        async def add() -> str:
            answer = await self._ask(request, AddPartitionsToTxnResponse, ADDED_BY_CLIENTS)
            found = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
            return name_of(found.partition_error_code, "AddPartitionsToTxn")

        await self._until_answered("AddPartitionsToTxn", add)
        self._added[place] = None

    # ---- offsets -----------------------------------------------------------------------------------------

    async def commit_offsets(self, group: str, offsets: Mapping[Place, int], member: Member | None) -> None:
        """As a member of a group, or on one's own."""
        if not self._way.is_implicit:
            await self._add_offsets(group)
        client, generation = self._client, -1 if member is None else member.generation
        marks = {place: f"{self.txn}:{place[0]}-{place[1]}" for place in offsets}
        for place, offset in offsets.items():
            sent = CommitSent(client.now, marks[place], group, *place, offset, generation, self.txn)
            client.history.add(sent)
        request = self._offsets_request(group, offsets, marks, generation, member)

        async def commit() -> str:
            answer = await self._asking.ask(
                GROUP, group, request, TxnOffsetCommitResponse, at_most=self._way.offsets
            )
            codes = [each.error_code for topic in answer.topics for each in topic.partitions]
            return next((error for code in codes if (error := name_of(code, "TxnOffsetCommit"))), "")

        try:
            await self._until_answered("TxnOffsetCommit", commit)
        except LifeOver as over:
            if over.is_refused:
                for mark in marks.values():
                    client.history.add(CommitRefused(client.now, mark, str(over)))
            raise
        for mark in marks.values():
            client.history.add(CommitDone(client.now, mark, self._asking.answered_by))

    def _offsets_request(
        self,
        group: str,
        offsets: Mapping[Place, int],
        marks: Mapping[Place, str],
        generation: int,
        member: Member | None,
    ) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(
            transactional_id=self._plan.transactional_id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id=generation,
            member_id="" if member is None else member.member_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=place[0],
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=place[1], committed_offset=offset, committed_metadata=marks[place]
                        )
                    ],
                )
                for place, offset in offsets.items()
            ],
        )

    async def _add_offsets(self, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._plan.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=group,
        )

        async def add() -> str:
            answer = await self._ask(request, AddOffsetsToTxnResponse, ADD_OFFSETS)
            return name_of(answer.error_code, "AddOffsetsToTxn")

        await self._until_answered("AddOffsetsToTxn", add)

    # ---- the end -----------------------------------------------------------------------------------------

    async def end(self, is_commit: bool, late: tuple[bool, float] | None = None) -> None:
        """Commit or abort; `late`: another EndTxn for this transaction, sent that long after it is over."""
        client, txn, who = self._client, self.txn, self._who
        request = self._end_request(is_commit)
        late_request = None if late is None else self._end_request(late[0])

        async def end() -> str:
            client.history.add(TxnEnding(client.now, txn, is_commit))
            asked_at = client.now
            answer = await self._ask(request, EndTxnResponse, self._way.end)
            error = name_of(answer.error_code, "EndTxn")
            if not error:
                client.history.add(TxnEnded(client.now, asked_at, txn, is_commit))
                self._next_epoch(answer)
            return error

        await self._until_answered("EndTxn", end)
        self.txn = ""
        if late is not None and late_request is not None:
            self._end_late(late_request, who, late[1])
        if self._is_unsure and not self._way.is_implicit:
            raise LifeOver("a request is still under way, and the next transaction would have the same epoch")

    def _next_epoch(self, answer: EndTxnResponse) -> None:
        if self._way.is_implicit:
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()

    def _end_late(self, request: EndTxnRequest, who: tuple[str, int, int], delay_s: float) -> None:
        async def end() -> str:
            answer = await self._ask(request, EndTxnResponse, self._way.end)
            return name_of(answer.error_code, "EndTxn")

        self._client.process.spawn(self._late("late EndTxn", end, who, delay_s))

    def _end_request(self, is_commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self._plan.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=is_commit,
        )

    # ---- asking ------------------------------------------------------------------------------------------

    async def _ask(self, request: Message, response: type[M], at_most: int) -> M:
        return await self._asking.ask(
            TRANSACTION, self._plan.transactional_id, request, response, at_most=at_most
        )

    async def _until_answered(self, api: str, send: Callable[[], Awaitable[str]], tries: int = TRIES) -> None:
        """Send until it is answered well; LifeOver where it is refused, or never answered."""
        client = self._client
        for _ in range(tries):
            asked_at, who = client.now, self._who
            try:
                error = await send()
            except BarnabasError as failure:
                self._is_unsure = True
                client.history.add(ClientError(client.now, client.name, api, str(failure)))
                await client.pause(AGAIN_S)
                continue
            self._answered(api, asked_at, who, error)
            if not error:
                return
            self._is_unsure = self._is_unsure or error in TROUBLE
            if error not in RETRIED:
                raise LifeOver(f"{api}: {error}", is_refused=not self._is_unsure)
            await client.pause(AGAIN_S)
        raise LifeOver(f"{api} was not answered well after {tries} times")

    async def _late(
        self, api: str, send: Callable[[], Awaitable[str]], who: tuple[str, int, int], delay_s: float
    ) -> None:
        client = self._client
        await client.clock.sleep(delay_s)
        asked_at = client.now
        try:
            error = await send()
        except BarnabasError as failure:
            client.history.add(ClientError(client.now, client.name, api, str(failure)))
        else:
            self._answered(api, asked_at, who, error)

    def _answered(self, api: str, asked_at: float, who: tuple[str, int, int], error: str) -> None:
        client = self._client
        told = TxnAnswered(client.now, asked_at, self._plan.transactional_id, *who, api, error)
        client.history.add(told)
