"""DescribeQuorum: who leads the metadata quorum, who votes, how far they are.

Asked for the one partition there is, as Kafka does it: whatever else is named spoils the whole answer. The
leader itself counts as having fetched just now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from barnabas.broker.services import ControllerServices


async def handle(
    request: DescribeQuorumRequest, context: RequestContext, services: ControllerServices
) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    if asked != [(CLUSTER_METADATA, 0)]:
        return DescribeQuorumResponse(error_code=0, error_message="", topics=_unknown(request), nodes=[])
    described = TopicData(topic_name=CLUSTER_METADATA, partitions=[_partition(services)])
    return DescribeQuorumResponse(error_code=0, error_message="", topics=[described], nodes=_nodes(services))


def _partition(services: ControllerServices) -> PartitionData:
    quorum, now_ms = services.quorum, services.clock.wall_ms()
    voter = ReplicaState(
        replica_id=quorum.me.id,
        replica_directory_id=quorum.me.directory_id.bytes,
        log_end_offset=quorum.end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return PartitionData(
        partition_index=0,
        error_code=0,
        error_message="",
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[voter],
        observers=[],
    )


def _nodes(services: ControllerServices) -> list[Node]:
    quorum = services.quorum
    listeners = [Listener(name=each.name, host=each.host, port=each.port) for each in quorum.controllers]
    return [Node(node_id=quorum.me.id, listeners=listeners)]


def _unknown(request: DescribeQuorumRequest) -> list[TopicData]:
    error = wire_error("UNKNOWN_TOPIC_OR_PARTITION").code
    return [
        TopicData(
            topic_name=topic.topic_name,
            partitions=[
                PartitionData(
                    partition_index=each.partition_index,
                    error_code=error,
                    error_message="This server does not host this topic-partition.",
                    leader_id=0,
                    leader_epoch=0,
                    high_watermark=0,
                    current_voters=[],
                    observers=[],
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
