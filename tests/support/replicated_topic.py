"""A replicated topic of a cluster of real nodes: who leads, who is in sync, and leaders moved to where a test
wants them. Everything goes by plain requests, so that it is the same for Barnabas and for Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.support.combined_cluster import DEADLINE_S, SLOW_POLL_S, CombinedCluster, NotServing
from tests.support.raw_client import RawClient

TIMEOUT_MS = 30_000


class PartitionState(NamedTuple):
    """A partition as one broker tells of it."""

    leader: int
    isr: frozenset[int]


class ReplicatedTopic:
    """`partitions` partitions, each on all nodes of the cluster; the first is led by the first node, ..."""

    def __init__(self, cluster: CombinedCluster, name: str, partitions: int) -> None:
        self.cluster = cluster
        self.name = name
        self.partitions = partitions

    def create(self, **configs: str) -> None:
        """Create it, and wait until it is led on all nodes; configs with _ for each dot."""
        topic = CreatableTopic(
            name=self.name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
                for number, replicas in enumerate(self._led_by(self.cluster.ids))
            ],
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False)
        with self.cluster.client(self.cluster.ids[0]) as client:
            (answer,) = client.ask(request, 7, CreateTopicsResponse).topics
        assert answer.error_code == 0, answer
        self.wait_until_whole()

    def ask(self, client: RawClient) -> list[PartitionState]:
        """By number, as the broker behind a connection has it now; empty where it does not know the topic."""
        asked = [MetadataRequestTopic(name=self.name)]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        (topic,) = client.ask(request, 12, MetadataResponse).topics
        return [
            PartitionState(each.leader_id, frozenset(each.isr_nodes))
            for each in sorted(topic.partitions, key=lambda one: one.partition_index)
        ]

    def states(self, node_id: int) -> list[PartitionState]:
        """As a node has it now; empty where it does not answer."""
        try:
            with self.cluster.client(node_id) as client:
                return self.ask(client)
        except (OSError, EOFError):
            return []

    def wait_until_whole(self, leaders: Sequence[int] | None = None) -> None:
        """Wait until every node tells that all replicas are in sync, and these lead, where that matters."""
        deadline = time.monotonic() + DEADLINE_S
        everyone = frozenset(self.cluster.ids)
        for each in self.cluster.ids:
            while not self._is_whole(found := self.states(each), everyone, leaders):
                if time.monotonic() > deadline:
                    raise NotServing(f"{self.name} is not whole, as node {each} tells: {found}")
                time.sleep(SLOW_POLL_S)

    def _is_whole(
        self, found: Sequence[PartitionState], everyone: frozenset[int], leaders: Sequence[int] | None
    ) -> bool:
        return (
            len(found) == self.partitions
            and all(each.leader in everyone and each.isr == everyone for each in found)
            and (leaders is None or [each.leader for each in found] == list(leaders))
        )

    def place(self, leaders: Sequence[int]) -> None:
        """Have partitions led by these nodes in turn, all of which run; wait until all nodes tell so."""
        replicas = self._led_by(leaders)
        with self.cluster.client(leaders[0]) as client:
            self._prefer(client, replicas)
            self._elect(client)
        self.wait_until_whole([each[0] for each in replicas])

    def _led_by(self, leaders: Sequence[int]) -> list[list[int]]:
        """The replicas of each partition, on all nodes, the preferred leader first."""
        ids = self.cluster.ids
        at = [ids.index(leaders[number % len(leaders)]) for number in range(self.partitions)]
        return [[*ids[each:], *ids[:each]] for each in at]

    def _prefer(self, client: RawClient, replicas: Sequence[list[int]]) -> None:
        moved = [
            ReassignablePartition(partition_index=number, replicas=each)
            for number, each in enumerate(replicas)
        ]
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS,
            allow_replication_factor_change=False,
            topics=[ReassignableTopic(name=self.name, partitions=moved)],
        )

        def ask() -> set[int]:
            answer = client.ask(request, 1, AlterPartitionReassignmentsResponse)
            parts = [each.error_code for topic in answer.responses for each in topic.partitions]
            return {answer.error_code, *parts}

        self._until_taken(ask, {"NONE"})

    def _elect(self, client: RawClient) -> None:
        # of all topics, so that coordinators move back, too
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=TIMEOUT_MS)

        def ask() -> set[int]:
            answer = client.ask(request, 2, ElectLeadersResponse)
            parts = [
                each.error_code
                for topic in answer.replica_election_results
                for each in topic.partition_result
            ]
            return {answer.error_code, *parts}

        self._until_taken(ask, {"NONE", "ELECTION_NOT_NEEDED"})

    def _until_taken(self, ask: Callable[[], set[int]], taken: set[str]) -> None:
        """Ask again while the cluster is not ready for it."""
        deadline = time.monotonic() + DEADLINE_S
        while not (told := {WIRE_ERRORS[code].name for code in ask()}) <= taken:
            if time.monotonic() > deadline:
                raise NotServing(f"{self.name}: leaders are not moved: {told}")
            time.sleep(SLOW_POLL_S)

    def log(self, node_id: int, partition: int) -> bytes:
        """All bytes of a replica's segments, which bear the leader epochs, too."""
        folder = self.cluster.data(node_id) / f"{self.name}-{partition}"
        return b"".join(each.read_bytes() for each in sorted(folder.glob("*.log")))
