"""DescribeQuorum: the leader of the metadata quorum, its voters and observers, and their log end offsets.

A broker forwards it to the leader; another voter answers NOT_LEADER_OR_FOLLOWER. The request must name the
quorum's one partition and no other, as in Kafka: otherwise every partition in it is an error. The leader
itself counts as having fetched just now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions import NOT_COMMITTED
from barnabas.core.errors import wire_error
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.requests import RequestContext
    from barnabas.broker.quorum.describing import DescribedQuorum, DescribedReplica
    from barnabas.broker.services import ControllerServices

_NOT_HERE = "This server does not host this topic-partition."
_NOT_LEADER = "This node does not lead the metadata quorum."


async def handle(
    request: DescribeQuorumRequest, context: RequestContext, services: ControllerServices
) -> DescribeQuorumResponse:
    if not context.is_at_controller:
        return await _forwarded(request, context, services)
    asked = [
        (topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    if asked != [(CLUSTER_METADATA, 0)]:
        return DescribeQuorumResponse(error_code=0, error_message="", topics=_unknown(request), nodes=[])
    replicas = services.quorum.describe()
    if replicas is None:
        refused = _failed(0, "NOT_LEADER_OR_FOLLOWER", _NOT_LEADER)
        topic = TopicData(topic_name=CLUSTER_METADATA, partitions=[refused])
        return DescribeQuorumResponse(error_code=0, error_message="", topics=[topic], nodes=[])
    described = TopicData(topic_name=CLUSTER_METADATA, partitions=[_partition(services, replicas)])
    return DescribeQuorumResponse(error_code=0, error_message="", topics=[described], nodes=_nodes(services))


async def _forwarded(
    request: DescribeQuorumRequest, context: RequestContext, services: ControllerServices
) -> DescribeQuorumResponse:
    try:
        return await services.controller.send(request, DescribeQuorumResponse, context)
    except NOT_COMMITTED as error:
        return DescribeQuorumResponse(
            error_code=error.wire.code, error_message=error.told, topics=[], nodes=[]
        )


def _partition(services: ControllerServices, replicas: DescribedQuorum) -> PartitionData:
    quorum = services.quorum
    return PartitionData(
        partition_index=0,
        error_code=0,
        error_message="",
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[_replica(each) for each in replicas.voters],
        observers=[_replica(each) for each in replicas.observers],
    )


def _replica(replica: DescribedReplica) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.key.id,
        replica_directory_id=replica.key.directory_id.bytes,
        log_end_offset=replica.end_offset,
        last_fetch_timestamp=replica.fetched_ms,
        last_caught_up_timestamp=replica.caught_up_ms,
    )


def _nodes(services: ControllerServices) -> list[Node]:
    """The voters, with their listeners."""
    core = services.quorum.core
    return [
        Node(
            node_id=voter.key.id,
            listeners=[
                Listener(name=each.listener, host=each.host, port=each.port)
                for each in core.endpoints_of(voter.key.id)
            ],
        )
        for voter in core.voters.voters
    ]


def _unknown(request: DescribeQuorumRequest) -> list[TopicData]:
    return [
        TopicData(
            topic_name=topic.topic_name,
            partitions=[
                _failed(each.partition_index, "UNKNOWN_TOPIC_OR_PARTITION", _NOT_HERE)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def _failed(index: int, error_name: str, message: str) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=wire_error(error_name).code,
        error_message=message,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )
