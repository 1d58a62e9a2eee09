"""Short cuts for tests of replication in virtual time: topics with replicas on chosen nodes, writes, logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.broker.connections.requests import ANONYMOUS, BROKER_ROUTER, RequestContext
from barnabas.broker.handlers import produce
from barnabas.broker.node import Node
from barnabas.broker.replicas.replica import Replica
from barnabas.core.errors import WIRE_ERRORS
from barnabas.log.partition import PartitionLog
from barnabas.metadata.parts import PartitionImage, TopicImage
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.schema import NO_UUID
from barnabas.records.reader import read_batches
from tests.support.clusters import VirtualCluster
from tests.support.logs import batch, read_bytes

ALL = -1


async def create_topic(
    cluster: VirtualCluster,
    name: str,
    assignment: Sequence[Sequence[int]],
    *,
    nodes: Mapping[int, Node] | None = None,
    **configs: str,
) -> TopicImage:
    """A topic whose partitions have replicas on these nodes, the first of which leads; known to all nodes, or
    to those named, which are brokers."""
    nodes = cluster.nodes if nodes is None else nodes
    node = next(iter(nodes.values()))
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
            for number, replicas in enumerate(assignment)
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
    response = await node.services.controller.send(request, CreateTopicsResponse)
    assert response.topics[0].error_code == 0, WIRE_ERRORS[response.topics[0].error_code].name
    await cluster.until(lambda: all(knows(each, name) for each in nodes.values()), f"all know {name}")
    found = node.services.image.topic(name)
    assert found is not None
    return found


def knows(node: Node, name: str) -> bool:
    return node.services.image.topic(name) is not None


def partition_of(node: Node, name: str, partition: int = 0) -> PartitionImage:
    """What a node's metadata says of a partition."""
    topic = node.services.image.topic(name)
    assert topic is not None
    return topic.partitions[partition]


async def send(
    node: Node,
    name: str,
    data: bytes | bytearray | int,
    partition: int = 0,
    *,
    acks: int = ALL,
    timeout_ms: int = 30_000,
) -> PartitionProduceResponse:
    """The answer of a node that is sent a batch, or one of so many records."""
    if isinstance(data, int):
        data = batch(data)
    version = 12
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=NO_UUID,
                partition_data=[PartitionProduceData(index=partition, records=memoryview(bytearray(data)))],
            )
        ],
    )
    context = RequestContext(ANONYMOUS, "PLAINTEXT", BROKER_ROUTER, "test", "test", version)
    response = await produce.handle(request, context, node.services)
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


def error_of(answer: PartitionProduceResponse) -> str:
    return WIRE_ERRORS[answer.error_code].name


def replica_of(node: Node, name: str, partition: int = 0) -> Replica | None:
    """The open replica of a node, whatever its role."""
    topic = node.services.image.topic(name)
    if topic is None:
        return None
    replicas = node.broker.replicas
    return replicas.opened(topic, partition) or replicas.followed(topic, partition)


def log_of(node: Node, name: str, partition: int = 0) -> PartitionLog:
    replica = replica_of(node, name, partition)
    assert replica is not None
    return replica.log


def ends_of(cluster: VirtualCluster, name: str, partition: int = 0) -> Mapping[int, int]:
    """The ends of the logs of a partition, by node."""
    found = {each: replica_of(node, name, partition) for each, node in cluster.nodes.items()}
    return {each: replica.log.end_offset for each, replica in found.items() if replica is not None}


async def bytes_of(node: Node, name: str, partition: int = 0) -> bytes:
    """All batches of a partition, as the node has them."""
    log = log_of(node, name, partition)
    found, offset = b"", log.start_offset
    while data := await read_bytes(log, offset):
        found += data
        offset = list(read_batches(data))[-1][0].next_offset
    return found
