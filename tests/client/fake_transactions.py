"""The coordinator of transactions of the small cluster in memory, by the protocol's rules.

Every transactional id has one state that all brokers share; the broker that `coordinators` names answers for
it. Up to EndTxn 4 the epoch stays when a transaction ends, from 5 on it goes up. Markers are there at once,
but whoever takes over a transaction that is open hears CONCURRENT_TRANSACTIONS first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.core.errors import wire_error
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)
from barnabas.records.batch import BatchHeader
from barnabas.records.control import ControlType, build_end_transaction

if TYPE_CHECKING:
    from tests.client.fake_broker import FakeCluster

EMPTY, ONGOING, COMMITTED, ABORTED = "Empty", "Ongoing", "CompleteCommit", "CompleteAbort"
Place = tuple[str, int]


class FakeTransaction:
    """What the coordinator knows of one id."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id, self.epoch, self.last_epoch = producer_id, 0, -1
        self.state = EMPTY
        self.places: set[Place] = set()
        self.offsets: dict[str, dict[Place, int]] = {}  # not yet those of the groups


class FakeTransactions:
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.known: dict[str, FakeTransaction] = {}
        self.group_offsets: dict[str, dict[Place, int]] = {}

    def time_out(self, name: str) -> None:
        """As the coordinator does with a transaction that lasts too long."""
        self._fence(self.known[name])

    def _fence(self, transaction: FakeTransaction) -> None:
        before = transaction.epoch
        transaction.epoch += 1
        self._end(transaction, is_commit=False)
        transaction.last_epoch = before if self.cluster.features.get("transaction.version", 0) >= 2 else -1

    def _end(self, transaction: FakeTransaction, *, is_commit: bool) -> None:
        for topic, partition in transaction.places:
            log = self.cluster.partition(topic, partition)
            marker = build_end_transaction(
                ControlType.COMMIT if is_commit else ControlType.ABORT,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                coordinator_epoch=0,
                timestamp=0,
            )
            assert log.append(bytes(marker))[0] == 0
            past = log.producers.get(transaction.producer_id)
            if past and past[-1][0] < transaction.epoch:
                log.producers[transaction.producer_id] = [(transaction.epoch, -1, -1, -1)]
        if is_commit:
            for group, offsets in transaction.offsets.items():
                self.group_offsets.setdefault(group, {}).update(offsets)
        transaction.places.clear()
        transaction.offsets.clear()
        transaction.state = COMMITTED if is_commit else ABORTED

    def checked(self, node_id: int, name: str, producer: Place | tuple[int, int]) -> str:
        if node_id != self.cluster.coordinators.get(name, 1):
            return "NOT_COORDINATOR"
        transaction = self.known.get(name)
        if transaction is None or transaction.producer_id != producer[0]:
            return "INVALID_PRODUCER_ID_MAPPING"
        return "NONE" if transaction.epoch == producer[1] else "PRODUCER_FENCED"

    def add(self, name: str, place: Place | None) -> None:
        transaction = self.known[name]
        transaction.state = ONGOING
        if place is not None:
            transaction.places.add(place)

    # ---- requests ----------------------------------------------------------------------------------------

    def init(self, node_id: int, request: Any) -> tuple[str, int, int]:
        name = request.transactional_id
        if node_id != self.cluster.coordinators.get(name, 1):
            return "NOT_COORDINATOR", -1, -1
        transaction = self.known.get(name)
        if transaction is None:
            self.cluster.next_producer_id += 1
            transaction = self.known[name] = FakeTransaction(self.cluster.next_producer_id)
            return "NONE", transaction.producer_id, 0
        if transaction.state == ONGOING:
            self._fence(transaction)
            return "CONCURRENT_TRANSACTIONS", -1, -1
        if request.producer_epoch >= 0 and request.producer_epoch != transaction.epoch:
            if request.producer_epoch == transaction.last_epoch:
                return "NONE", transaction.producer_id, transaction.epoch
            return "PRODUCER_FENCED", -1, -1
        transaction.last_epoch = request.producer_epoch
        transaction.epoch += 1
        transaction.state = EMPTY
        return "NONE", transaction.producer_id, transaction.epoch

    def end(self, node_id: int, request: Any, version: int) -> tuple[str, int, int]:
        name, producer = request.transactional_id, (request.producer_id, request.producer_epoch)
        error = self.checked(node_id, name, producer)
        transaction = self.known.get(name)
        wanted = COMMITTED if request.committed else ABORTED
        has_ended = transaction is not None and transaction.state in (COMMITTED, ABORTED)
        if version >= 5 and error == "PRODUCER_FENCED" and has_ended:
            assert transaction is not None
            if transaction.epoch == request.producer_epoch + 1:
                error = "NONE" if transaction.state == wanted else "INVALID_TXN_STATE"
                return error, transaction.producer_id, transaction.epoch
        if error != "NONE":
            return error, -1, -1
        assert transaction is not None
        if version < 5 and transaction.state == wanted:
            return "NONE", -1, -1
        if transaction.state != ONGOING and (version < 5 or request.committed):
            return "INVALID_TXN_STATE", -1, -1
        transaction.last_epoch = transaction.epoch
        transaction.epoch += version >= 5
        self._end(transaction, is_commit=request.committed)
        return "NONE", transaction.producer_id, transaction.epoch

    def refusal(self, name: str | None, header: BatchHeader, place: Place, version: int) -> int:
        """The error of a batch, or 0; from Produce 12 on its partition becomes part of the transaction."""
        if not header.is_transactional:
            return 0 if name is None else wire_error("INVALID_TXN_STATE").code
        transaction = self.known.get(name or "")
        if transaction is None or transaction.producer_id != header.producer_id:
            return wire_error("INVALID_PRODUCER_ID_MAPPING").code
        if transaction.epoch != header.producer_epoch:
            return wire_error("INVALID_PRODUCER_EPOCH").code
        if version >= 12:
            self.add(name or "", place)
        elif place not in transaction.places:
            return wire_error("INVALID_TXN_STATE").code
        return 0


class TransactionHandlers:
    """The requests of transactions, for a broker."""

    cluster: FakeCluster
    node_id: int

    def on_init_producer_id(self, request: Any, version: int) -> init_producer_id.InitProducerIdResponse:
        if request.transactional_id is None:
            self.cluster.next_producer_id += 1
            error, producer_id, epoch = "NONE", self.cluster.next_producer_id, 0
        else:
            error, producer_id, epoch = self.cluster.transactions.init(self.node_id, request)
        return init_producer_id.InitProducerIdResponse(
            throttle_time_ms=0, error_code=code(error), producer_id=producer_id, producer_epoch=epoch
        )

    def on_end_txn(self, request: Any, version: int) -> end_txn.EndTxnResponse:
        error, producer_id, epoch = self.cluster.transactions.end(self.node_id, request, version)
        return end_txn.EndTxnResponse(
            throttle_time_ms=0, error_code=code(error), producer_id=producer_id, producer_epoch=epoch
        )

    def on_add_partitions_to_txn(
        self, request: Any, version: int
    ) -> add_partitions_to_txn.AddPartitionsToTxnResponse:
        name = request.v3_and_below_transactional_id
        producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        error = self.cluster.transactions.checked(self.node_id, name, producer)
        if error == "NONE":
            for topic in request.v3_and_below_topics:
                for partition in topic.partitions:
                    self.cluster.transactions.add(name, (topic.name, partition))
        return added(request, error)

    def on_add_offsets_to_txn(self, request: Any, version: int) -> add_offsets_to_txn.AddOffsetsToTxnResponse:
        name, producer = request.transactional_id, (request.producer_id, request.producer_epoch)
        error = self.cluster.transactions.checked(self.node_id, name, producer)
        if error == "NONE":
            self.cluster.transactions.add(name, None)
        return add_offsets_to_txn.AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code(error))

    def on_txn_offset_commit(self, request: Any, version: int) -> txn_offset_commit.TxnOffsetCommitResponse:
        transactions, name = self.cluster.transactions, request.transactional_id
        transaction = transactions.known[name]
        error = "NONE"
        if self.node_id != self.cluster.coordinators.get(request.group_id, 1):
            error = "NOT_COORDINATOR"
        elif (transaction.producer_id, transaction.epoch) != (request.producer_id, request.producer_epoch):
            error = "INVALID_PRODUCER_EPOCH"
        elif version < 5 and transaction.state != ONGOING:
            error = "INVALID_TXN_STATE"
        else:
            transactions.add(name, None)
            offsets = transaction.offsets.setdefault(request.group_id, {})
            for topic in request.topics:
                for each in topic.partitions:
                    offsets[topic.name, each.partition_index] = each.committed_offset
        topics = [
            txn_offset_commit.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    txn_offset_commit.TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code(error)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return txn_offset_commit.TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)


def added(request: Any, error: str) -> add_partitions_to_txn.AddPartitionsToTxnResponse:
    """The same answer for all partitions that are to be added."""
    results = [
        add_partitions_to_txn.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                    partition_index=each, partition_error_code=code(error)
                )
                for each in topic.partitions
            ],
        )
        for topic in request.v3_and_below_topics
    ]
    return add_partitions_to_txn.AddPartitionsToTxnResponse(
        throttle_time_ms=0, results_by_topic_v3_and_below=results
    )


def code(name: str) -> int:
    return 0 if name == "NONE" else wire_error(name).code
