"""Requests between brokers: to another over a connection, to oneself by the same handler.

Two nodes stand in one network in memory, each a cluster of its own, and each shown metadata in which the
other is a broker, too: the second coordinates transactional ids, the first leads the partitions of topic "t".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from barnabas.broker.cluster.peers import PeerNotReachable
from barnabas.broker.node import Node
from barnabas.core.errors import WIRE_ERRORS
from barnabas.core.memory_disk import MemoryDisk
from barnabas.core.memory_network import MemoryNetwork
from barnabas.core.network import Address
from barnabas.core.random import SeededRandom
from barnabas.core.settings.listeners import Listener
from barnabas.core.settings.sources import resolve
from barnabas.core.workers import InlineWorkers
from barnabas.metadata.names import TRANSACTION_STATE
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
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
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.protocol.schema import NO_UUID
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.sim.loop import LoopClock, run
from barnabas.transport.connection import BrokerConnection, open_connection

LEADER, COORDINATOR = 1, 2
PORT = 9092
VERIFYING_PRODUCE, ADDING_PRODUCE = 11, 12
COMMITTED, LATEST = 1, -1


class ShownImage:
    """A node's image as it would be in one cluster of both: other brokers, and other leaders."""

    def __init__(self, metadata: MetadataPublisher, brokers: dict[int, Any], leaders: dict[str, int]) -> None:
        self._metadata, self.brokers, self._leaders = metadata, brokers, leaders
        self.image = self  # where a service has the publisher

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metadata.image, name)

    def topic(self, name: str) -> Any:
        topic = self._metadata.image.topic(name)
        if topic is None or name not in self._leaders:
            return topic
        partitions = tuple(one._replace(leader=self._leaders[name]) for one in topic.partitions)
        return topic._replace(partitions=partitions)


class Requests:
    """The requests that came in at a node's listeners: names and versions."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def answered(self, name: str, version: int, response: object, seconds: float) -> None:
        self.seen.append((name, version))

    def failed(self, name: str, version: int, codes: object) -> None:
        """Errors are looked at in the answers."""

    def versions(self, name: str) -> list[int]:
        return [version for each, version in self.seen if each == name]


class Two:
    """Both nodes, and a client that is connected with each."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.clock = LoopClock()
        self.nodes: dict[int, Node] = {}
        self.clients: dict[int, BrokerConnection] = {}
        self.asked: dict[int, Requests] = {}
        self.producer = (-1, -1)

    async def start(self) -> None:
        for node_id in (LEADER, COORDINATOR):
            await self._start(node_id)
        brokers = {id_: node.services.image.brokers[id_] for id_, node in self.nodes.items()}
        for node in self.nodes.values():
            leaders = {TRANSACTION_STATE: COORDINATOR, "t": LEADER}
            shown = ShownImage(node.services.metadata, brokers, leaders)
            node.services.metadata = cast(Any, shown)

    async def _start(self, node_id: int) -> None:
        settings = {
            "log.dirs": "memory",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://node{node_id}:{PORT},CONTROLLER://node{node_id}:{PORT + 1}",
            "controller.listener.names": "CONTROLLER",
            "transaction.state.log.num.partitions": "2",
            "request.timeout.ms": "5000",
        }
        node = self.nodes[node_id] = await Node.start(
            resolve(flags=settings),
            disk=lambda _: MemoryDisk(SeededRandom(node_id), clock=self.clock),
            network=self.network.host(f"node{node_id}"),
            clock=self.clock,
            random=SeededRandom(node_id),
            workers=InlineWorkers(),
        )
        self.asked[node_id] = Requests()
        node.services.traffic = cast(Any, self.asked[node_id])
        client = self.clients[node_id] = await open_connection(
            self.network.host("client"),
            self.clock,
            Address(f"node{node_id}", PORT),
            client_id="test",
            software_version="1",
            connect_timeout_s=5,
            request_timeout_s=30,
            scratch=memoryview(bytearray(1000)),
        )
        wanted = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
        create = CreateTopicsRequest(topics=[wanted], timeout_ms=1000)
        assert (await client.ask(create, CreateTopicsResponse)).topics[0].error_code == 0
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])  # which makes the topic
        await client.ask(find, FindCoordinatorResponse)

    async def init(self) -> None:
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        answer = await self.clients[COORDINATOR].ask(request, InitProducerIdResponse)
        assert answer.error_code == 0
        self.producer = (answer.producer_id, answer.producer_epoch)

    async def produce(self, version: int = ADDING_PRODUCE, *, partition: int = 0) -> str:
        """A batch for the leader, in the transaction."""
        producer_id, epoch = self.producer
        batch = build_batch(
            [Record(0, self.clock.wall_ms(), None, b"v")],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        data = PartitionProduceData(index=partition, records=memoryview(batch))
        of_topic = TopicProduceData(name="t", topic_id=NO_UUID, partition_data=[data])
        request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1000, topic_data=[of_topic])
        answer = await self.clients[LEADER].ask(request, ProduceResponse, at_most=version)
        return name_of(answer.responses[0].partition_responses[0].error_code)

    async def end(self) -> str:
        producer_id, epoch = self.producer
        request = EndTxnRequest(
            transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        answer = await self.clients[COORDINATOR].ask(request, EndTxnResponse)
        self.producer = (answer.producer_id, answer.producer_epoch)
        return name_of(answer.error_code)

    async def committed_end(self, partition: int = 0) -> int:
        """Up to where the leader shows committed records; a marker is behind the one of the transaction."""
        one = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=COMMITTED,
            topics=[ListOffsetsTopic(name="t", partitions=[one])],
        )
        answer = await self.clients[LEADER].ask(request, ListOffsetsResponse)
        return answer.topics[0].partitions[0].offset

    async def marked(self, end: int, *, partition: int = 0) -> None:
        """Wait for the marker behind which the committed records end there."""
        for _ in range(1000):
            if await self.committed_end(partition) == end:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"t-{partition} has no marker")

    async def stop(self) -> None:
        for node in self.nodes.values():
            await node.stop()
        for client in self.clients.values():
            client.close()


def name_of(code: int) -> str:
    return WIRE_ERRORS[code].name if code else "NONE"


def with_two(work: Callable[[Two], Awaitable[None]]) -> Two:
    async def main() -> Two:
        two = Two()
        await two.start()
        await work(two)
        await two.stop()
        return two

    return run(main())


def verify_request(two: Two, *, verify_only: bool = True) -> AddPartitionsToTxnRequest:
    asked = AddPartitionsToTxnTransaction(
        transactional_id="x",
        producer_id=two.producer[0],
        producer_epoch=two.producer[1],
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    return AddPartitionsToTxnRequest(transactions=[asked])


def marker_request(two: Two) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=two.producer[0],
                producer_epoch=two.producer[1] + 1,
                transaction_result=True,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1, 7])],
                coordinator_epoch=0,
                transaction_version=2,
            )
        ]
    )


def codes_of(answer: WriteTxnMarkersResponse) -> list[str]:
    return [name_of(one.error_code) for one in answer.markers[0].topics[0].partitions]


def error_of(answer: AddPartitionsToTxnResponse) -> str:
    (result,) = answer.results_by_transaction
    return name_of(result.topic_results[0].results_by_partition[0].partition_error_code)


@pytest.mark.parametrize("asking", [LEADER, COORDINATOR])
def test_same_answer_to_oneself_and_over_the_wire(asking: int) -> None:
    async def work(two: Two) -> None:
        await two.init()
        peers = two.nodes[asking].services.peers
        for verify_only, expected in ((True, "TRANSACTION_ABORTABLE"), (False, "NONE"), (True, "NONE")):
            request = verify_request(two, verify_only=verify_only)
            answer = await peers.send(COORDINATOR, request, AddPartitionsToTxnResponse, needs=4)
            assert (error_of(answer), answer.error_code) == (expected, 0)
        answer = await peers.send(LEADER, verify_request(two), AddPartitionsToTxnResponse, needs=4)
        assert error_of(answer) == "INVALID_PRODUCER_ID_MAPPING"  # it coordinates another producer, or none
        written = await peers.send(LEADER, marker_request(two), WriteTxnMarkersResponse)
        assert codes_of(written) == ["NONE", "NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
        other = COORDINATOR if asking == LEADER else LEADER
        times = 3 if asking == LEADER else 1  # a request to oneself passes no listener
        assert two.asked[other].versions("AddPartitionsToTxn") == [5] * times
        assert two.asked[other].versions("WriteTxnMarkers") == [2] * (asking != LEADER)
        assert two.asked[asking].versions("AddPartitionsToTxn") == []
        assert two.asked[asking].versions("WriteTxnMarkers") == []

    with_two(work)


def test_transaction_with_remote_coordinator() -> None:
    async def work(two: Two) -> None:
        await two.init()
        for number in range(1, 4):
            assert await two.produce() == "NONE"
            assert await two.produce(partition=1) == "NONE"
            assert await two.committed_end() == 2 * number - 2
            assert await two.end() == "NONE"
            await two.marked(2 * number)
            await two.marked(2 * number, partition=1)
        # the partition was added to the transaction by its leader, and got its markers from the coordinator
        assert set(two.asked[COORDINATOR].versions("AddPartitionsToTxn")) == {5}
        assert two.asked[LEADER].versions("WriteTxnMarkers") == [2] * 3  # one for both partitions
        assert two.asked[LEADER].versions("AddPartitionsToTxn") == []
        log = two.nodes[COORDINATOR].services.replicas
        topic = two.nodes[COORDINATOR].quorum.metadata.image.topic("t")
        assert topic is not None
        assert (await log.leader(topic, 0)).log.end_offset == 0

    with_two(work)


def test_remote_coordinator_refuses_unknown_partitions_and_epochs() -> None:
    async def work(two: Two) -> None:
        await two.init()
        assert await two.produce(VERIFYING_PRODUCE) == "TRANSACTION_ABORTABLE"
        assert await two.produce(VERIFYING_PRODUCE - 1) == "INVALID_TXN_STATE"
        two.producer = (two.producer[0], two.producer[1] + 1)
        assert await two.produce() == "INVALID_PRODUCER_EPOCH"
        assert await two.committed_end() == 0

    with_two(work)


def test_unreachable_coordinator_is_a_retriable_error() -> None:
    async def work(two: Two) -> None:
        await two.init()
        assert await two.produce() == "NONE"
        assert await two.end() == "NONE"
        await two.marked(2)
        two.network.partition(["node1"], ["node2"])
        began = two.clock.monotonic()
        assert await two.produce() == "NOT_ENOUGH_REPLICAS"
        assert two.clock.monotonic() - began == pytest.approx(5.0, abs=0.1)  # request.timeout.ms
        two.network.heal()
        await asyncio.sleep(1)
        assert await two.produce() == "NONE"

    with_two(work)


@pytest.mark.parametrize("fault", ["partition", "drop"])
def test_markers_are_retried_until_the_leader_is_back(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work(two: Two) -> None:
        await two.init()
        assert await two.produce() == "NONE"
        if fault == "partition":
            two.network.partition(["node1"], ["node2"])
        else:
            two.nodes[LEADER]._listeners.close()  # nobody listens any more
            two.network.drop("node1", "node2")
        assert await two.end() == "NONE"
        await asyncio.sleep(30)
        assert await two.committed_end() == 0
        if fault == "partition":
            two.network.heal()
        else:
            await two.nodes[LEADER]._listeners.bind([Listener("PLAINTEXT", "node1", PORT, "PLAINTEXT")])
        await two.marked(2)
        assert await two.produce() == "NONE"

    with_two(work)
    assert caplog.text.count("t-0 gets its markers later: broker 1 does not answer") == 1


def test_unknown_broker_and_too_old_broker() -> None:
    async def work(two: Two) -> None:
        await two.init()
        peers = two.nodes[LEADER].services.peers
        with pytest.raises(PeerNotReachable, match="broker 7 has no listener PLAINTEXT in the metadata"):
            await peers.send(7, verify_request(two), AddPartitionsToTxnResponse)
        await peers.send(COORDINATOR, verify_request(two), AddPartitionsToTxnResponse)
        with pytest.raises(NotSpoken, match="broker 2 is too old: it has no version 6 of AddPartitionsToTxn"):
            await peers.send(COORDINATOR, verify_request(two), AddPartitionsToTxnResponse, needs=6)
        peers.close()
        with pytest.raises(PeerNotReachable, match="this node is stopping"):
            await peers.send(COORDINATOR, verify_request(two), AddPartitionsToTxnResponse)

    with_two(work)


def test_new_address_of_a_broker_is_used() -> None:
    async def work(two: Two) -> None:
        await two.init()
        services = two.nodes[LEADER].services
        await services.peers.send(COORDINATOR, verify_request(two), AddPartitionsToTxnResponse)
        known = services.image.brokers[COORDINATOR]
        elsewhere = known.endpoints["PLAINTEXT"]._replace(port=PORT + 5)
        services.image.brokers[COORDINATOR] = known._replace(endpoints={"PLAINTEXT": elsewhere})
        with pytest.raises(PeerNotReachable, match=f"node2:{PORT + 5}"):
            await services.peers.send(COORDINATOR, verify_request(two), AddPartitionsToTxnResponse)
        services.image.brokers[COORDINATOR] = known
        await services.peers.send(COORDINATOR, verify_request(two), AddPartitionsToTxnResponse)

    with_two(work)
