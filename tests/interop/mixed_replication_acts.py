"""What is done to partitions whose replicas are on brokers of both kinds, and what is to be true of them.

Every wait is for a state that the cluster tells of by itself, as Metadata of any broker has it. A partition
here is always number 0 of its topic, so that a topic's name is enough.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.interop.replica_files import difference, read_replica
from tests.support.mixed_cluster import MixedCluster
from tests.support.mixed_node import ClusterFailed, MixedNode
from tests.support.raw_client import RawClient

PATIENCE_S = 120.0
_PREFERRED, _ELECTION_NOT_NEEDED, _NOT_LEADER = 0, 84, 6

State = tuple[int, list[int], list[int]]  # leader, replicas, sorted ISR


class ReplicationActs:
    """Clients of a cluster's brokers, which may be killed and come back."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster
        self.topics: dict[str, list[int]] = {}  # those whose replicas are compared, and where they are
        self.compacted: set[str] = set()  # of them; each replica is compacted by itself
        self._admin: AdminClient | None = None

    @property
    def brokers(self) -> list[MixedNode]:
        return [each for each in self.cluster.nodes.values() if each.role == "broker"]

    @property
    def bootstrap(self) -> str:
        return ",".join(each.address for each in self.brokers)

    @property
    def admin(self) -> AdminClient:
        self._admin = self._admin or AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    # --- changes

    def create(self, name: str, replicas: Sequence[int], **settings: str | int) -> None:
        """A topic with its first leader first; settings with `_` for `.`; waits until all that run are in
        sync."""
        config = {key.replace("_", "."): str(value) for key, value in settings.items()}
        topic = NewTopic(name, 1, replica_assignment=[list(replicas)], config=config)
        self.admin.create_topics([topic])[name].result(PATIENCE_S)
        self.topics[name] = list(replicas)
        running = [each for each in replicas if self.cluster.nodes[each].is_running]
        self.wait_for_state(name, replicas[0], running)

    def adopt(self, name: str) -> None:
        """A topic that the cluster has made by itself."""
        state = self.cluster.wait_for(f"topic {name}", lambda: self.state(name))
        self.topics[name] = list(state[1])
        self.wait_for_state(name, None, state[1])

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)
        self.cluster.wait_for(f"{name} is gone", lambda: self.state(name) is None or None)

    def delete_records(self, name: str, before: int) -> None:
        """The leader answers when the log start offset of every replica that runs has followed."""
        partition = DeleteRecordsPartition(partition_index=0, offset=before)
        topic = DeleteRecordsTopic(name=name, partitions=[partition])

        def is_done() -> bool:
            leader = self._leader(name)
            if leader < 0:
                return False
            with RawClient(self.cluster.nodes[leader].port) as client:
                request = DeleteRecordsRequest(topics=[topic], timeout_ms=30_000)
                answer = client.ask(request, 2, DeleteRecordsResponse)
            (result,) = answer.topics[0].partitions
            if result.error_code not in (0, _NOT_LEADER):
                raise ClusterFailed(f"{name}: records before {before} are not deleted: {result}")
            return result.error_code == 0

        self.cluster.wait_for(f"records of {name} before {before} deleted", lambda: is_done() or None)

    def lead(self, name: str, leader: int) -> None:
        """Put that replica first and elect it."""
        replicas = self.topics[name]
        self.reassign(name, [leader, *(each for each in replicas if each != leader)])
        self.elect(name)
        self.wait_for_state(name, leader, replicas)

    def elect(self, name: str) -> None:
        """Have the preferred leader lead; it must be in sync."""
        asked = [TopicPartitions(topic=name, partitions=[0])]
        request = ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=asked, timeout_ms=60_000)
        with RawClient(self._running().port) as client:
            answer = client.ask(request, 2, ElectLeadersResponse)
        results = [each for one in answer.replica_election_results for each in one.partition_result]
        codes = {each.error_code for each in results} | {answer.error_code}
        if codes - {0, _ELECTION_NOT_NEEDED}:
            raise ClusterFailed(f"no election of {name}: {answer}")

    def reassign(self, name: str, replicas: Sequence[int]) -> None:
        """Move the partition to these brokers; waits until it has arrived."""
        target = ReassignablePartition(partition_index=0, replicas=list(replicas))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=60_000,
            allow_replication_factor_change=True,
            topics=[ReassignableTopic(name=name, partitions=[target])],
        )
        with RawClient(self._running().port) as client:
            answer = client.ask(request, 1, AlterPartitionReassignmentsResponse)
        errors = (answer.error_code, answer.responses[0].partitions[0].error_code)
        if errors != (0, 0):
            raise ClusterFailed(f"{name} cannot be moved to {replicas}: {errors}")
        self.topics[name] = list(replicas)
        self.wait_for_state(name, None, replicas)

    def lag(self, slow: int, names: Sequence[str]) -> None:
        """Stop a broker's process until the leaders of these topics have had it leave the ISR, while it still
        counts as alive (its session must be longer than `replica.lag.time.max.ms`); it comes back into it."""
        node = self.cluster.nodes[slow]
        node.pause()
        for name in names:
            self.wait_for_state(name, None, [each for each in self.topics[name] if each != slow])
        alive = _brokers(self._running())
        node.resume()
        if slow not in alive:
            raise ClusterFailed(f"{node} was fenced; brokers {alive}")
        for name in names:
            self.wait_for_state(name, None, self.topics[name])

    # --- what brokers tell

    def _running(self) -> MixedNode:
        return next(each for each in self.brokers if each.is_running and not each.is_paused)

    def state(self, name: str, at: MixedNode | None = None) -> State | None:
        """What a broker tells of the partition; None where it knows no such topic, or does not serve."""
        try:
            with RawClient((at or self._running()).port) as client:
                request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
                answer = client.ask(request, 12, MetadataResponse)
        except (OSError, EOFError):
            return None
        for topic in answer.topics:
            if topic.name == name:
                (partition,) = topic.partitions
                return partition.leader_id, partition.replica_nodes, sorted(partition.isr_nodes)
        return None

    def _leader(self, name: str) -> int:
        state = self.state(name)
        return -1 if state is None else state[0]

    def wait_for_state(self, name: str, leader: int | None, isr: Sequence[int]) -> None:
        """Wait until every running broker tells of this leader (None: of one in sync) and this ISR."""

        def is_so() -> bool:
            told = [self.state(name, each) for each in self.brokers if each.is_running and not each.is_paused]
            return all(
                one is not None
                and one[2] == sorted(isr)
                and (one[0] in isr if leader is None else one[0] == leader)
                for one in told
            )

        self.cluster.wait_for(f"{name} led by {leader}, ISR {isr}", lambda: is_so() or None)

    def wait_for_brokers(self) -> None:
        """Wait until all brokers serve and know of one another."""
        ids = sorted(each.node_id for each in self.brokers)
        for broker in self.brokers:
            self.cluster.wait_for(f"brokers {ids} at {broker}", lambda at=broker: _brokers(at) == ids or None)

    # --- records

    def send(self, name: str, values: Sequence[bytes], **settings: Any) -> list[int]:
        """Values one request each, with acks=all unless another setting is given; returns their offsets."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0} | settings)
        reports: list[Any] = []
        for value in values:
            key, _, _ = value.partition(b"=")
            producer.produce(name, value, key, on_delivery=lambda *told: reports.append(told))
            producer.flush(PATIENCE_S)
        failures = [str(error) for error, _ in reports if error]
        if failures or len(reports) != len(values):
            raise ClusterFailed(f"{name}: {failures}, {len(reports)} of {len(values)} are answered")
        return [message.offset() for _, message in reports]

    def read(self, name: str, *, isolation: str = "read_uncommitted") -> dict[int, bytes]:
        """All values of the partition by their offsets, as its leader gives them."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "none", "isolation.level": isolation}
        more = {"enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
        consumer = Consumer(settings | more)
        consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
        found: dict[int, bytes] = {}
        deadline = time.monotonic() + PATIENCE_S
        while True:
            message = consumer.poll(1.0)
            if time.monotonic() > deadline:
                raise ClusterFailed(f"{name} is not read to its end: {len(found)} records")
            if message is None:
                continue
            if message.error() is None:
                found[message.offset()] = message.value()
            elif message.error().code() == KafkaError._PARTITION_EOF:
                break
            elif message.error().fatal() or not message.error().retriable():
                raise KafkaException(message.error())
        consumer.close()
        return found

    def check(self, name: str, at: int, expected: Mapping[int, bytes], **reading: str) -> None:
        """That replica leads, and gives exactly these records."""
        self.lead(name, at)
        found = self.read(name, **reading)
        if found != dict(expected):
            raise ClusterFailed(f"{name} at {self.cluster.nodes[at]}: {found}, expected {expected}")

    # --- files

    def stop_and_compare(self) -> None:
        """Stop all nodes; the files of every topic's replicas are equal, and Kafka complains of nothing."""
        self.cluster.stop()
        differences = []
        for name, replicas in self.topics.items():
            if name in self.compacted:
                continue
            one, *others = [self.cluster.nodes[each] for each in replicas]
            for other in others:
                found = difference(read_replica(one.data, name), read_replica(other.data, name))
                if found:
                    differences.append(f"{name} at {one} and {other}: {found}")
        if differences:
            raise ClusterFailed("\n".join(differences))
        if complaints := self.cluster.complaints():
            raise ClusterFailed(
                f"Apache Kafka complains:\n{chr(10).join(complaints)}\n{self.cluster.diagnosis()}"
            )


def _brokers(broker: MixedNode) -> list[int]:
    try:
        with RawClient(broker.port) as client:
            request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            answer = client.ask(request, 12, MetadataResponse)
    except (OSError, EOFError):
        return []
    return sorted(each.node_id for each in answer.brokers)
