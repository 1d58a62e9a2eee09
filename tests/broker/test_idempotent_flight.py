"""Five batches of an idempotent producer in flight on a connection, while nodes are stopped and killed.

As clients do, the producer sends again, in order, the batches that failed with a retriable error. So every
batch is appended once and in order, and none gets OUT_OF_ORDER_SEQUENCE_NUMBER, after which clients need
another epoch. All of it is in virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from barnabas.core.errors import BarnabasError
from barnabas.core.network import Address
from barnabas.protocol.frames import SCRATCH_BYTES
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.schema import NO_UUID
from barnabas.sim.clock import SimClock
from barnabas.transport.connection import BrokerConnection, open_connection
from tests.support.clusters import BROKER_PORT, VirtualCluster, host_of, run_cluster
from tests.support.logs import batch
from tests.support.replication import create_topic, error_of, partition_of

BATCHES = 200
IN_FLIGHT = 5
FAULTS = 6
FOR_S = 600.0
RETRIABLE = {"NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"}
RETRIABLE |= {"REQUEST_TIMED_OUT"}


class Producer:
    """An idempotent producer of one partition, which sends batches of one record."""

    def __init__(self, cluster: VirtualCluster, chance: random.Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.offsets: dict[int, int] = {}  # by sequence
        self.errors: Counter[str] = Counter()
        self._connections: dict[int, BrokerConnection] = {}

    async def send_all(self) -> None:
        deadline = asyncio.get_running_loop().time() + FOR_S
        while len(self.offsets) < BATCHES:
            assert asyncio.get_running_loop().time() < deadline, f"{len(self.offsets)} acknowledged"
            left = [each for each in range(BATCHES) if each not in self.offsets]
            node = self._leader()
            try:
                await self._send(node, left[:IN_FLIGHT])
            except BarnabasError:
                if (lost := self._connections.pop(node, None)) is not None:
                    lost.close()
            await asyncio.sleep(self.chance.choice([0.01, 0.01, 0.5]))
        for each in self._connections.values():
            each.close()

    def _leader(self) -> int:
        """The leader as one of the nodes knows it, or another node, which refuses."""
        nodes = list(self.cluster.nodes)
        asked = self.chance.choice(nodes)
        leader = partition_of(self.cluster.nodes[asked], "t").leader
        return leader if leader in nodes and self.chance.random() < 0.9 else asked

    async def _send(self, node: int, sequences: list[int]) -> None:
        connection = self._connections.get(node)
        if connection is None:
            connection = self._connections[node] = await self._connect(node)
        asked: list[asyncio.Future[ProduceResponse]] = []
        for each in sequences:
            ask = connection.ask(_request(each), ProduceResponse, at_most=12)
            asked.append(asyncio.ensure_future(ask))
            await asyncio.sleep(self.chance.choice([0, 0, 0.01, 0.1]))
        lost: BaseException | None = None
        for sequence, answer in zip(
            sequences, await asyncio.gather(*asked, return_exceptions=True), strict=True
        ):
            if isinstance(answer, BaseException):
                lost = answer
                continue
            one = answer.responses[0].partition_responses[0]
            self.errors[error_of(one)] += 1
            if not one.error_code:
                self.offsets[sequence] = one.base_offset
        if lost is not None:
            raise lost

    async def _connect(self, node: int) -> BrokerConnection:
        return await open_connection(
            self.cluster.network.host("client"),
            SimClock(asyncio.get_running_loop()),
            Address(host_of(node), BROKER_PORT),
            client_id="test",
            software_version="1",
            connect_timeout_s=1.0,
            request_timeout_s=10.0,
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
        )


def _request(sequence: int) -> ProduceRequest:
    records = memoryview(batch(1, producer_id=7, producer_epoch=0, base_sequence=sequence))
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", topic_id=NO_UUID, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=3_000, topic_data=[topic])


async def _disturb(cluster: VirtualCluster, chance: random.Random) -> None:
    for _ in range(FAULTS):
        await asyncio.sleep(chance.uniform(0.05, 4.0))
        node = chance.choice(list(cluster.nodes))
        if chance.random() < 0.7:
            await cluster.nodes.pop(node).stop()
        else:
            await cluster.kill(node)
        await asyncio.sleep(chance.choice([0.02, 0.3, 4.0]))
        await cluster.start(node)


@pytest.mark.parametrize("min_in_sync", [2, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_batches_in_flight_are_appended_once_and_in_order(seed: int, min_in_sync: int) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        chance = random.Random(seed)
        await cluster.start()
        await create_topic(cluster, "t", [[1, 2, 3]], min_insync_replicas=str(min_in_sync))
        producer = Producer(cluster, chance)
        disturbing = asyncio.ensure_future(_disturb(cluster, chance))
        await producer.send_all()
        await disturbing
        assert set(producer.errors) <= {"NONE"} | RETRIABLE
        assert [producer.offsets[each] for each in range(BATCHES)] == list(range(BATCHES))
        await cluster.stop()

    run_cluster(scenario, VirtualCluster())
