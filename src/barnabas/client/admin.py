"""Looking after a cluster: topics, settings, brokers, offsets.

    async with Admin(network, clock, random, "localhost:9092") as admin:
        await admin.create_topics([NewTopic("orders", partitions=12)])

What only looks is asked again when a connection is lost on the way; what changes something is not, since it
may have been done: that error is the caller's to judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import NamedTuple, TypeVar

from barnabas.client.cluster import ClientConfig, Cluster
from barnabas.client.errors import BrokerNotReachable, TimedOut, broker_error, wire_error_of
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import FoundOffset, list_offsets
from barnabas.core.clock import Clock
from barnabas.core.network import Address, ConnectionLost, Network
from barnabas.core.random import Random
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.schema import NO_UUID, Message

M = TypeVar("M", bound=Message)

DEFAULT = -1  # the broker's own default


class NewTopic(NamedTuple):
    """A topic to be created."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    configs: Mapping[str, str | None] = {}
    assignments: Mapping[int, Sequence[int]] = {}  # partition -> brokers, instead of the two numbers


class CreatedTopic(NamedTuple):
    """A topic that has been created; what the broker did not tell is -1, or zeros."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


class Broker(NamedTuple):
    """A broker of the cluster."""

    node_id: int
    address: Address
    rack: str | None


class ClusterDescription(NamedTuple):
    """A cluster."""

    cluster_id: str
    controller_id: int
    brokers: list[Broker]


class ResourceType(IntEnum):
    """What has settings."""

    TOPIC = 2
    BROKER = 4


class ConfigEntry(NamedTuple):
    """A setting, and where its value comes from (Kafka's number of the source)."""

    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool


class PartitionDescription(NamedTuple):
    """A partition; the leader is -1 where there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]


class TopicDescription(NamedTuple):
    """A topic."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[PartitionDescription]


class Admin:
    """To be used by the tasks of one event loop."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        random: Random,
        bootstrap: str | Sequence[Address],
        config: ClientConfig | None = None,
    ) -> None:
        config = (config or ClientConfig())._replace(allow_auto_topic_creation=False)
        self.cluster = Cluster(network, clock, random, bootstrap, config)
        self._clock = clock
        self._timeout_ms = config.request_timeout_ms

    async def __aenter__(self) -> Admin:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of everything. Harmless when repeated."""
        await self.cluster.close()

    # ---- topics ------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create topics; the first that cannot be is raised (TopicExists ...), the others are created."""
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        response = await self._ask(request, CreateTopicsResponse, is_safe=validate_only)
        for topic in response.topics:
            self._check(topic.error_code, f"cannot create {topic.name!r}", topic.error_message)
        return [
            CreatedTopic(topic.name, topic.topic_id, topic.num_partitions, topic.replication_factor)
            for topic in response.topics
        ]

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics; the first that cannot be is raised (UnknownTopic ...), the others are deleted."""
        wanted = list(names)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=NO_UUID) for name in wanted],
            topic_names=wanted,
            timeout_ms=self._timeout_ms,
        )
        response = await self._ask(request, DeleteTopicsResponse, is_safe=False)
        for topic in response.responses:
            self._check(topic.error_code, f"cannot delete {topic.name!r}", topic.error_message)

    async def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Topics and their partitions; all there are if none are named."""
        wanted = None
        if names is not None:
            wanted = [MetadataRequestTopic(name=name, topic_id=NO_UUID) for name in names]
        request = MetadataRequest(
            topics=wanted,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        response = await self._ask(request, MetadataResponse, is_safe=True)
        for topic in response.topics:
            self._check(topic.error_code, f"cannot describe {topic.name!r}", None)
        return {
            topic.name: TopicDescription(
                topic.name,
                topic.topic_id,
                topic.is_internal,
                [
                    PartitionDescription(
                        p.partition_index,
                        p.leader_id,
                        p.leader_epoch,
                        list(p.replica_nodes),
                        list(p.isr_nodes),
                    )
                    for p in sorted(topic.partitions, key=lambda each: each.partition_index)
                ],
            )
            for topic in response.topics
            if topic.name is not None
        }

    # ---- everything else ---------------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster and its brokers."""
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, include_fenced_brokers=False
        )
        response = await self._ask(request, DescribeClusterResponse, is_safe=True)
        self._check(response.error_code, "cannot describe the cluster", response.error_message)
        brokers = [
            Broker(each.broker_id, Address(each.host, each.port), each.rack) for each in response.brokers
        ]
        return ClusterDescription(response.cluster_id, response.controller_id, brokers)

    async def describe_configs(
        self, resource: ResourceType, name: str, keys: Iterable[str] | None = None
    ) -> dict[str, ConfigEntry]:
        """The settings of a topic, or of a broker (by its id); all there are if none are named."""
        wanted = DescribeConfigsResource(
            resource_type=resource,
            resource_name=name,
            configuration_keys=None if keys is None else list(keys),
        )
        node_id = int(name) if resource is ResourceType.BROKER and name else None
        response = await self._ask(
            DescribeConfigsRequest(resources=[wanted]), DescribeConfigsResponse, is_safe=True, node_id=node_id
        )
        (result,) = response.results
        self._check(result.error_code, f"cannot describe {resource.name} {name!r}", result.error_message)
        return {
            entry.name: ConfigEntry(entry.value, entry.config_source, entry.read_only, entry.is_sensitive)
            for entry in result.configs
        }

    async def list_offsets(
        self, wanted: Mapping[tuple[str, int], int], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """Offsets by time, or by name (EARLIEST, LATEST ... of barnabas.client.offsets)."""
        by_partition = {TopicPartition(*partition): at for partition, at in wanted.items()}
        timeout_s = self._timeout_ms / 1000
        return await list_offsets(
            self.cluster, by_partition, read_committed=read_committed, timeout_s=timeout_s
        )

    async def _ask(
        self, request: Message, response: type[M], *, is_safe: bool, node_id: int | None = None
    ) -> M:
        deadline = self._clock.monotonic() + self._timeout_ms / 1000
        failures = 0
        while True:
            try:
                return await self.cluster.ask(request, response, node_id=node_id)
            except (BrokerNotReachable, ConnectionLost, TimedOut) as error:
                was_sent = not isinstance(error, BrokerNotReachable)
                if (was_sent and not is_safe) or self._clock.monotonic() >= deadline:
                    raise
                failures += 1
                await self._clock.sleep(self.cluster.backoff.seconds(failures))

    def _check(self, error_code: int, what: str, said: str | None) -> None:
        if error_code:
            raise broker_error(wire_error_of(error_code), what, said)


def _creatable(topic: NewTopic) -> CreatableTopic:
    is_assigned = bool(topic.assignments)
    return CreatableTopic(
        name=topic.name,
        num_partitions=DEFAULT if is_assigned else topic.partitions,
        replication_factor=DEFAULT if is_assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in topic.assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )
