"""Brokers of Apache Kafka replicate among themselves under a controller of Barnabas, which keeps their ISRs.

A follower that stops, and one that is killed, leaves the ISR and comes back; a partition moves from one
broker to another, and back. Acknowledged records are all there afterwards, and Kafka's brokers log no error.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.kafka_tools import KafkaTools
from tests.support.mixed_cluster import MixedCluster
from tests.support.mixed_node import BARNABAS, KAFKA, MixedNode
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC, LEADER, FOLLOWER = "copied", 11, 12


class Replicated:
    """The topic, of one partition, at two brokers of Apache Kafka."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster
        self.leader, self.follower = cluster.nodes[LEADER], cluster.nodes[FOLLOWER]
        self.sent: list[bytes] = []

    def create(self) -> None:
        assigned = CreatableReplicaAssignment(partition_index=0, broker_ids=[LEADER, FOLLOWER])
        topic = CreatableTopic(
            name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[assigned], configs=[]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000, validate_only=False)
        with RawClient(self.leader.port) as client:
            assert client.ask(request, 7, CreateTopicsResponse).topics[0].error_code == 0

    def state(self) -> tuple[int, list[int], list[int]] | None:
        """Leader, replicas and sorted ISR, as the first broker tells."""
        with RawClient(self.leader.port) as client:
            answer = client.ask(
                MetadataRequest(topics=None, allow_auto_topic_creation=False), 12, MetadataResponse
            )
        for topic in answer.topics:
            if topic.name == TOPIC:
                (partition,) = topic.partitions
                return partition.leader_id, partition.replica_nodes, sorted(partition.isr_nodes)
        return None

    def wait_for(self, leader: int, replicas: list[int], isr: list[int]) -> None:
        self.cluster.wait_for(
            f"leader {leader}, replicas {replicas}, ISR {isr}",
            lambda: self.state() == (leader, replicas, isr) or None,
        )

    def wait_for_brokers(self) -> None:
        self.cluster.wait_for("both brokers", lambda: self._brokers() == {LEADER, FOLLOWER} or None)

    def _brokers(self) -> set[int]:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        try:
            with RawClient(self.leader.port) as client:
                return {each.node_id for each in client.ask(request, 12, MetadataResponse).brokers}
        except (OSError, EOFError):
            return set()  # it does not listen yet

    def send(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.leader.address, "acks": "all", "linger.ms": 5})
        failures: list[object] = []
        for _ in range(count):
            value = b"record %d" % len(self.sent)
            self.sent.append(value)
            producer.produce(TOPIC, value, on_delivery=lambda error, _: error and failures.append(error))
        assert producer.flush(60) == 0
        assert failures == []

    def read(self, at: MixedNode) -> list[bytes]:
        settings = {"bootstrap.servers": at.address, "group.id": "none", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings | {"enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[bytes] = []
        while len(found) < len(self.sent):
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            found.append(message.value() or b"")
        consumer.close()
        return found


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    home = tmp_path_factory.mktemp("replicated")
    with KafkaTools() as tools, MixedCluster(home, {1: BARNABAS}, tools) as cluster:
        for each in (LEADER, FOLLOWER):
            cluster.add_broker(each, KAFKA)
        cluster.start()
        replicated = Replicated(cluster)
        replicated.wait_for_brokers()
        replicated.create()
        replicated.wait_for(LEADER, [LEADER, FOLLOWER], [LEADER, FOLLOWER])
        yield replicated
        cluster.stop()
        assert cluster.complaints() == []


def test_a_follower_that_stops_and_one_that_is_killed_come_back_into_the_isr(replicated: Replicated) -> None:
    replicated.send(100)
    for end in (replicated.follower.stop, replicated.follower.kill):
        end()
        replicated.wait_for(LEADER, [LEADER, FOLLOWER], [LEADER])
        replicated.send(50)
        replicated.follower.start()
        replicated.wait_for(LEADER, [LEADER, FOLLOWER], [LEADER, FOLLOWER])


def test_a_partition_moves_and_is_led_by_the_broker_it_has_moved_to(replicated: Replicated) -> None:
    replicated.send(20)
    target = ReassignablePartition(partition_index=0, replicas=[FOLLOWER])
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=60_000,
        allow_replication_factor_change=True,
        topics=[ReassignableTopic(name=TOPIC, partitions=[target])],
    )
    with RawClient(replicated.leader.port) as client:
        answer = client.ask(request, 1, AlterPartitionReassignmentsResponse)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    replicated.wait_for(FOLLOWER, [FOLLOWER], [FOLLOWER])
    target.replicas = [LEADER]
    with RawClient(replicated.leader.port) as client:
        assert client.ask(request, 1, AlterPartitionReassignmentsResponse).error_code == 0
    replicated.wait_for(LEADER, [LEADER], [LEADER])  # copied, in sync, and then the other one went
    assert replicated.read(replicated.follower) == replicated.sent
