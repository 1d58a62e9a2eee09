"""Transactions by single requests, each in the version a test chooses, and what a reader then finds.

`Transactor` is a producer that does nothing by itself: it keeps its id and epoch as it was told them, and
sends whatever it is told to, at any time.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from barnabas.core.disk import Buffer
from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
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
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.protocol.schema import NO_UUID
from barnabas.records.builder import build_batch
from barnabas.records.reader import read_batch, read_batches
from barnabas.records.record import Record
from tests.support.raw_client import RawClient, fetch_request, wait_until

COMMITTED, UNCOMMITTED = 1, 0
OLD_PRODUCE, ABORTABLE_PRODUCE, ADDING_PRODUCE = 10, 11, 12  # what clients know of transactions
_GROUP, _TRANSACTION = 0, 1
_EARLY = ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")


def name_of(code: int) -> str:
    return WIRE_ERRORS[code].name if code else "NONE"


def transactional_batch(
    values: list[bytes],
    producer_id: int,
    epoch: int,
    sequence: int,
    *,
    transactional: bool = True,
    key: bytes | None = None,
) -> bytearray:
    now_ms = int(time.time() * 1000)  # as markers have it: a segment does not span more than a week
    records = [Record(at, now_ms, key, value) for at, value in enumerate(values)]
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def find_coordinator(client: RawClient, key: str, key_type: int = _GROUP) -> None:
    """Its topic is made when somebody first asks."""
    ask = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[])
    wait_until(lambda: client.ask(ask, 3, FindCoordinatorResponse).error_code == 0, "a coordinator")


class Transactor:
    """A transactional producer, by hand."""

    def __init__(self, client: RawClient, name: str, *, timeout_ms: int = 60_000) -> None:
        self.client = client
        self.name = name
        self.sequences: dict[tuple[str, int], int] = {}
        self._timeout_ms = timeout_ms
        self.init()

    def init(self) -> None:
        """Get an id, or the next epoch; whoever coordinates it may still be busy."""
        find_coordinator(self.client, self.name, _TRANSACTION)
        wait_until(lambda: self._init() == "NONE", "a producer id")
        self.sequences.clear()

    def _init(self) -> str:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self._timeout_ms)
        answer = self.client.ask(request, 5, InitProducerIdResponse)
        error = name_of(answer.error_code)
        assert error in ("NONE", "CONCURRENT_TRANSACTIONS", *_EARLY), error
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return error

    def add(self, topic: str, partition: int = 0, *, version: int = 3) -> str:
        """As clients add partitions that know no other way; their last transaction may still be ending."""
        request = AddPartitionsToTxnRequest(
            transactions=[],
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        found: list[str] = []

        def ask() -> bool:
            answer = self.client.ask(request, version, AddPartitionsToTxnResponse)
            result = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
            found.append(name_of(result.partition_error_code))
            return found[-1] != "CONCURRENT_TRANSACTIONS"

        wait_until(ask, "the end of the transaction before")
        return found[-1]

    def produce(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        version: int = ADDING_PRODUCE,
        epoch: int | None = None,
        sequence: int | None = None,
        transactional: bool = True,
        named: bool = True,
        acks: int = -1,
        topic_id: bytes = NO_UUID,
        key: bytes | None = None,
    ) -> str:
        """Send a batch, with the next sequence unless another is given; the name of the error."""
        at = self.sequences.get((topic, partition), 0) if sequence is None else sequence
        data = transactional_batch(
            list(values),
            self.producer_id,
            self.epoch if epoch is None else epoch,
            at,
            transactional=transactional,
            key=key,
        )
        request = ProduceRequest(
            transactional_id=self.name if named else None,
            acks=acks,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=topic_id,
                    partition_data=[PartitionProduceData(index=partition, records=memoryview(data))],
                )
            ],
        )
        answer = self.client.ask(request, version, ProduceResponse)
        error = name_of(answer.responses[0].partition_responses[0].error_code)
        if error == "NONE":
            self.sequences[topic, partition] = at + len(values)
        return error

    def commit_offset(self, group: str, topic: str, offset: int, *, version: int = 5) -> str:
        """What a group has read, as part of the transaction."""
        one = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[one])],
        )
        answer = self.client.ask(request, version, TxnOffsetCommitResponse)
        return name_of(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool = True, version: int = 5, epoch: int | None = None) -> str:
        """Commit or abort; from version 5 on the next epoch comes with the answer."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commit,
        )
        answer = self.client.ask(request, version, EndTxnResponse)
        if answer.error_code == 0 and version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return name_of(answer.error_code)


class Seen(NamedTuple):
    """What a fetch gave."""

    values: list[bytes | None]  # of those records that are for the reader
    aborted: list[tuple[int, int]] | None  # producer id and first offset
    high_watermark: int
    last_stable_offset: int


def see(
    client: RawClient,
    topic: str,
    isolation: int = COMMITTED,
    *,
    partition: int = 0,
    offset: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
) -> Seen:
    """One fetch, read as a consumer does: what an aborted transaction wrote is left out."""
    request = fetch_request(
        topic, offset=offset, partition=partition, max_wait_ms=max_wait_ms, min_bytes=min_bytes
    )
    request.isolation_level = isolation
    (found,) = client.ask(request, 12, FetchResponse).responses[0].partitions
    assert found.error_code == 0
    data = found.records or b""
    assert isinstance(data, (bytes, memoryview))
    listed = found.aborted_transactions
    aborted = None if listed is None else [(one.producer_id, one.first_offset) for one in listed]
    if aborted is not None:
        aborted.sort(key=lambda one: one[1])  # consumers do that: Kafka has them in the order of their ends
    return Seen(
        _committed(data, aborted or [], offset),
        aborted,
        found.high_watermark,
        found.last_stable_offset,
    )


def _committed(data: Buffer, aborted: list[tuple[int, int]], offset: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    waiting, ignored = list(aborted), set()
    for header, position in read_batches(data):
        while waiting and waiting[0][1] <= header.last_offset:
            ignored.add(waiting.pop(0)[0])
        if header.is_control:
            ignored.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in ignored):
            records = read_batch(data, position, header)
            values += [record.value for record in records if record.offset >= offset]
    return values


def latest(client: RawClient, topic: str, isolation: int, partition: int = 0) -> int:
    """The end of a partition, as ListOffsets tells it."""
    asked = ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )
    return client.ask(request, 6, ListOffsetsResponse).topics[0].partitions[0].offset


def write_marker(
    client: RawClient,
    topic: str,
    producer_id: int,
    epoch: int,
    *,
    commit: bool = False,
    partition: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> str:
    """What a coordinator, or a tool, sends."""
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    (result,) = client.ask(request, 2, WriteTxnMarkersResponse).markers
    assert result.producer_id == producer_id
    ((found,),) = [topic.partitions for topic in result.topics]
    return name_of(found.error_code)


def create_topic(client: RawClient, name: str, partitions: int = 1) -> bytes:
    """A topic whose leaders answer; its id."""
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    answer = client.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer
    wait_until(
        lambda: all(latest(client, name, UNCOMMITTED, partition) == 0 for partition in range(partitions)),
        f"the leaders of {name}",
    )
    return answer.topics[0].topic_id
