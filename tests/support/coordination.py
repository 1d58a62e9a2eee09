"""Groups and transactions in clusters in virtual time: requests to whichever node coordinates or leads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.broker.connections.requests import ANONYMOUS, BROKER_ROUTER, RequestContext
from barnabas.broker.coordinators.coordinator import Coordinator, partition_for
from barnabas.broker.coordinators.topics import ensure_topic
from barnabas.broker.node import Node
from barnabas.core.errors import WIRE_ERRORS
from barnabas.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.metadata.parts import PartitionImage
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
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
from barnabas.protocol.schema import NO_UUID, Message
from barnabas.records.builder import build_batch
from barnabas.records.control import parse_end_transaction
from barnabas.records.reader import read_batch, read_batches
from barnabas.records.record import Record
from barnabas.sim.clock import START_MS
from barnabas.transactions.states import NAMES
from tests.support.clusters import VirtualCluster
from tests.support.logs import read_bytes
from tests.support.replication import create_topic, log_of

M = TypeVar("M", bound=Message)

RETRIED = frozenset(
    (
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
        "NOT_LEADER_OR_FOLLOWER",
        "NOT_ENOUGH_REPLICAS",
        "NETWORK_EXCEPTION",
        "UNSTABLE_OFFSET_COMMIT",
        "NO_LEADER",
    )
)
ONE_PARTITION = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


def name_of(code: int) -> str:
    return WIRE_ERRORS[code].name if code else "NONE"


async def ask(node: Node, request: Message, response: type[M], version: int | None = None) -> M:
    """The answer of a node's handler, without a connection in between."""
    cls = type(request)
    chosen = BROKER_ROUTER.newest_version(cls) if version is None else version
    context = RequestContext(ANONYMOUS, "PLAINTEXT", BROKER_ROUTER, "test", "test", chosen)
    answer = await BROKER_ROUTER.handler_of(cls)(request, context, node.services)
    assert isinstance(answer, response)
    return answer


class Coordination:
    """What tests ask of the coordinators of a cluster."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster

    async def begin(self, replicas: Sequence[int] = ()) -> None:
        """Make both topics, and wait until all nodes know them, and all replicas are in sync. Where replicas
        are named the topics have one partition there, which the first of them leads."""
        for name in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            if replicas:
                await create_topic(
                    self.cluster, name, [replicas], cleanup_policy="compact", min_insync_replicas="2"
                )
            else:
                await ensure_topic(name, self.any_node().services)
            await self.cluster.until(lambda name=name: self._is_whole(name), f"{name} is whole")  # type: ignore[misc]

    def _is_whole(self, name: str) -> bool:
        for node in self.cluster.nodes.values():
            topic = node.services.image.topic(name)
            if topic is None or any(set(one.isr) != set(one.replicas) for one in topic.partitions):
                return False
        return True

    def any_node(self) -> Node:
        """A node that lives, by an image that is as new as any."""
        return max(self.cluster.nodes.values(), key=lambda node: node.services.image.offset)

    def image_of(self, topic: str, partition: int = 0) -> PartitionImage:
        found = self.any_node().services.image.topic(topic)
        assert found is not None
        return found.partitions[partition]

    def place_of(self, topic: str, key: str) -> int:
        """The partition of a coordinator's topic that a key belongs to."""
        found = self.any_node().services.image.topic(topic)
        assert found is not None
        return partition_for(key, len(found.partitions))

    def leader_of(self, topic: str, partition: int = 0) -> Node | None:
        """The living node that leads a partition, by its own image."""
        for node_id, node in self.cluster.nodes.items():
            found = node.services.image.topic(topic)
            image = None if found is None else found.partitions[partition]
            if image is not None and image.leader == node_id:
                if image.leader_epoch < self.image_of(topic, partition).leader_epoch:
                    continue  # it does not know yet that it was deposed
                return node
        return None

    def leader_id(self, topic: str, partition: int = 0) -> int:
        node = self.leader_of(topic, partition)
        return -1 if node is None else node.services.node_id

    async def move(self, topic: str, to: int, partition: int = 0) -> None:
        """Have a replica lead: it becomes the preferred one, and is elected."""
        now = self.image_of(topic, partition)
        order = [to, *(each for each in now.replicas if each != to)]
        await self.reassign(topic, order, partition)
        chosen = [TopicPartitions(topic=topic, partitions=[partition])]

        def is_eligible() -> bool:
            image = self.image_of(topic, partition)
            return list(image.replicas) == order and to in image.isr

        await self.cluster.until(is_eligible, f"node {to} is preferred, and in sync")
        await self.any_node().services.controller.send(
            ElectLeadersRequest(election_type=0, topic_partitions=chosen, timeout_ms=30_000),
            ElectLeadersResponse,
        )
        await self.cluster.until(lambda: self.leader_id(topic, partition) == to, f"node {to} leads {topic}")

    async def reassign(self, topic: str, replicas: Sequence[int], partition: int = 0) -> None:
        """Have these nodes have the replicas, in this order; returns when that is under way."""
        moving = ReassignablePartition(partition_index=partition, replicas=list(replicas))
        await self.any_node().services.controller.send(
            AlterPartitionReassignmentsRequest(
                timeout_ms=30_000, topics=[ReassignableTopic(name=topic, partitions=[moving])]
            ),
            AlterPartitionReassignmentsResponse,
        )

    async def set_config(self, topic: str, name: str, value: str) -> None:
        """Alter a setting of a topic."""
        altered = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[altered])
        await self.any_node().services.controller.send(
            IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
            IncrementalAlterConfigsResponse,
        )

    async def again(self, attempt: Any, seconds: float = 120) -> Any:
        """Try until the error is none that clients retry; gives the error and the answer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            error, answer = await attempt()
            if error not in RETRIED:
                return error, answer
            assert loop.time() < deadline, f"still {error} after {seconds} s"
            await asyncio.sleep(0.05)

    async def at_leader(
        self, topic: str, partition: int, request: Message, response: type[M], version: int | None = None
    ) -> M | None:
        node = self.leader_of(topic, partition)
        return None if node is None else await ask(node, request, response, version)

    # ---- transactions

    def state_of(self, transactional_id: str) -> str:
        """The state of a transaction, as its coordinator knows it; empty while no node does."""
        partition = self.place_of(TRANSACTION_STATE, transactional_id)
        node = self.leader_of(TRANSACTION_STATE, partition)
        coordinator = None if node is None else node.services.transactions_in_use
        for host in [] if coordinator is None else coordinator.loaded():
            if host.replica.partition == partition and transactional_id in host.shard.transactions:
                return NAMES[host.shard.transactions[transactional_id].state]
        return ""

    async def until_state(self, transactional_id: str, *states: str) -> None:
        await self.cluster.until(
            lambda: self.state_of(transactional_id) in states,
            f"{transactional_id} is {' or '.join(states)}",
            seconds=120,
        )

    # ---- groups

    async def commit(self, group: str, offset: int, topic: str = "in") -> str:
        """Commit as a client that assigns partitions by itself, until it is told one way or the other."""

        async def attempt() -> tuple[str, None]:
            return await self.commit_once(group, offset, topic), None

        return str((await self.again(attempt))[0])

    async def commit_once(self, group: str, offset: int, topic: str = "in", node: Node | None = None) -> str:
        node = node or self.leader_of(CONSUMER_OFFSETS, self.place_of(CONSUMER_OFFSETS, group))
        if node is None:
            return "NO_LEADER"
        one = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=topic, topic_id=NO_UUID, partitions=[one])],
        )
        answer = await ask(node, request, OffsetCommitResponse, 9)
        return name_of(answer.topics[0].partitions[0].error_code)

    async def committed(self, group: str, topic: str = "in", *, stable: bool = True) -> int:
        """What a group has committed, -1 where nothing."""

        async def attempt() -> tuple[str, int]:
            node = self.leader_of(CONSUMER_OFFSETS, self.place_of(CONSUMER_OFFSETS, group))
            return ("NO_LEADER", -1) if node is None else await fetch_committed(node, group, topic, stable)

        error, offset = await self.again(attempt)
        assert error == "NONE", error
        return int(offset)


async def fetch_committed(node: Node, group: str, topic: str = "in", stable: bool = True) -> tuple[str, int]:
    """One OffsetFetch: the error and the offset."""
    wanted = OffsetFetchRequestGroup(
        group_id=group,
        topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
    )
    request = OffsetFetchRequest(groups=[wanted], require_stable=stable)
    answer = (await ask(node, request, OffsetFetchResponse, 9)).groups[0]
    if answer.error_code:
        return name_of(answer.error_code), -1
    found = answer.topics[0].partitions[0]
    return name_of(found.error_code), found.committed_offset


def transactional_batch(values: Sequence[bytes], producer_id: int, epoch: int, sequence: int) -> bytearray:
    now_ms = START_MS + int(asyncio.get_running_loop().time() * 1000)
    return build_batch(
        [Record(at, now_ms, None, value) for at, value in enumerate(values)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


class Producer:
    """A transactional producer in a cluster in virtual time, by hand; it retries what clients retry."""

    def __init__(self, coordination: Coordination, name: str, *, timeout_ms: int = 60_000) -> None:
        self._at = coordination
        self.name = name
        self.timeout_ms = timeout_ms
        self.id = self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    @property
    def _partition(self) -> int:
        return self._at.place_of(TRANSACTION_STATE, self.name)

    async def init(self) -> str:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self.timeout_ms)

        async def attempt() -> tuple[str, InitProducerIdResponse | None]:
            answer = await self._at.at_leader(
                TRANSACTION_STATE, self._partition, request, InitProducerIdResponse, 5
            )
            return ("NO_LEADER" if answer is None else name_of(answer.error_code)), answer

        error, answer = await self._at.again(attempt)
        if error == "NONE":
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        return str(error)

    async def produce(self, topic: str, values: Sequence[bytes], partition: int = 0) -> str:
        """One batch; the partition is added to the transaction by its leader."""
        sequence = self._sequences.get((topic, partition), 0)

        async def attempt() -> tuple[str, None]:
            data = transactional_batch(values, self.id, self.epoch, sequence)
            request = ProduceRequest(
                transactional_id=self.name,
                acks=-1,
                timeout_ms=10_000,
                topic_data=[
                    TopicProduceData(
                        name=topic,
                        topic_id=NO_UUID,
                        partition_data=[
                            PartitionProduceData(index=partition, records=memoryview(data)),
                        ],
                    )
                ],
            )
            answer = await self._at.at_leader(topic, partition, request, ProduceResponse, 12)
            if answer is None:
                return "NO_LEADER", None
            return name_of(answer.responses[0].partition_responses[0].error_code), None

        error, _ = await self._at.again(attempt)
        if error == "NONE":
            self._sequences[topic, partition] = sequence + len(values)
        return str(error)

    async def commit_offset(self, group: str, offset: int, topic: str = "in") -> str:
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        partition = self._at.place_of(CONSUMER_OFFSETS, group)

        async def attempt() -> tuple[str, None]:
            answer = await self._at.at_leader(
                CONSUMER_OFFSETS, partition, request, TxnOffsetCommitResponse, 5
            )
            if answer is None:
                return "NO_LEADER", None
            return name_of(answer.topics[0].partitions[0].error_code), None

        return str((await self._at.again(attempt))[0])

    async def end(self, *, commit: bool = True) -> str:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=commit
        )

        async def attempt() -> tuple[str, EndTxnResponse | None]:
            answer = await self._at.at_leader(TRANSACTION_STATE, self._partition, request, EndTxnResponse, 5)
            return ("NO_LEADER" if answer is None else name_of(answer.error_code)), answer

        error, answer = await self._at.again(attempt)
        if error == "NONE":
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        return str(error)


class Decided(NamedTuple):
    """What transactions have left in a partition."""

    committed: list[bytes]
    aborted: list[bytes]
    pending: list[bytes]
    markers: int


async def decided(node: Node, topic: str, partition: int = 0) -> Decided:
    """The values in the log of a node, by what became of their transactions."""
    log = log_of(node, topic, partition)
    committed: list[bytes] = []
    aborted: list[bytes] = []
    pending: dict[int, list[bytes]] = {}
    markers, offset = 0, log.start_offset
    while data := await read_bytes(log, offset):
        for header, position in read_batches(data):
            offset = header.next_offset
            if header.is_control:
                marker = parse_end_transaction(data, position, header)
                assert marker is not None
                markers += 1
                ended = pending.pop(header.producer_id, [])
                (committed if marker.is_commit else aborted).extend(ended)
                continue
            values = [bytes(record.value or b"") for record in read_batch(data, position, header)]
            pending.setdefault(header.producer_id, []).extend(values)
    return Decided(committed, aborted, [one for some in pending.values() for one in some], markers)


def coordinator_at(node: Node, topic: str) -> Coordinator[Any] | None:
    """The coordinator of a node, where it has begun."""
    services = node.services
    return services.groups_in_use if topic == CONSUMER_OFFSETS else services.transactions_in_use


def loaded_at(node: Node, topic: str) -> list[int]:
    """The partitions that a node has loaded."""
    found = coordinator_at(node, topic)
    return [] if found is None else [host.replica.partition for host in found.loaded()]
