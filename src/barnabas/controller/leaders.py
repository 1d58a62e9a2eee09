"""ElectLeaders: elect the preferred leader or, for a partition without a leader, any replica.

The preferred leader is the first of a partition's replicas: if each leads, leaders are spread evenly. An
unclean election may lose records; it is for a partition without a leader and without an eligible replica. If
all partitions are requested, the response has only those that needed an election.
"""

from __future__ import annotations

from barnabas.controller.decisions import Decision, Refused
from barnabas.controller.elections import ElectionDefaults, elect
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import NO_LEADER, PartitionChangeRecord
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from barnabas.protocol.schema import Message

PREFERRED, UNCLEAN = 0, 1
_DEFAULTS = ElectionDefaults()


def elect_leaders(
    image: ClusterImage, request: ElectLeadersRequest, *, defaults: ElectionDefaults = _DEFAULTS
) -> Decision[ElectLeadersResponse]:
    """The elections that change something, and a result for each requested partition."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        message = f"Unknown election type {request.election_type}"
        return Decision([], refuse_all(request, Refused("INVALID_REQUEST", message)))
    records: dict[tuple[str, int], PartitionChangeRecord] = {}
    topics: list[ReplicaElectionResult] = []
    for asked in _asked(image, request):
        results: list[PartitionResult] = []
        for index in asked.partitions:
            try:
                change = _elect(image, asked.topic, index, request.election_type, defaults)
            except Refused as refused:
                if request.topic_partitions is not None or refused.error.name != "ELECTION_NOT_NEEDED":
                    results.append(_result(index, refused))
            else:
                records[asked.topic, index] = change
                results.append(PartitionResult(partition_id=index, error_code=0, error_message=None))
        topics.append(ReplicaElectionResult(topic=asked.topic, partition_result=results))
    response = ElectLeadersResponse(throttle_time_ms=0, error_code=0, replica_election_results=topics)
    made: list[Message] = list(records.values())
    return Decision(made, response)


def refuse_all(request: ElectLeadersRequest, refused: Refused) -> ElectLeadersResponse:
    """The same error for all requested partitions."""
    topics = [
        ReplicaElectionResult(
            topic=asked.topic, partition_result=[_result(index, refused) for index in asked.partitions]
        )
        for asked in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(
        throttle_time_ms=0, error_code=refused.error.code, replica_election_results=topics
    )


def _asked(image: ClusterImage, request: ElectLeadersRequest) -> list[TopicPartitions]:
    if request.topic_partitions is not None:
        return request.topic_partitions
    return [
        TopicPartitions(topic=name, partitions=list(range(len(image.topics_by_name[name].partitions))))
        for name in sorted(image.topics_by_name)
    ]


def _elect(
    image: ClusterImage, name: str, index: int, election_type: int, defaults: ElectionDefaults
) -> PartitionChangeRecord:
    topic = image.topic(name)
    if topic is None:
        raise Refused("UNKNOWN_TOPIC_OR_PARTITION", f"No such topic as {name}")
    partition = topic.partition(index)
    if partition is None:
        raise Refused("UNKNOWN_TOPIC_OR_PARTITION", f"No such partition as {name}-{index}")
    is_unclean = election_type == UNCLEAN
    if partition.leader == partition.replicas[0] or (is_unclean and partition.leader != NO_LEADER):
        raise Refused("ELECTION_NOT_NEEDED", "Leader election not needed for topic partition.")
    change = elect(image, topic, index, defaults, is_unclean=is_unclean)
    if change is not None:
        return change
    if is_unclean:
        raise Refused("ELIGIBLE_LEADERS_NOT_AVAILABLE", "Eligible topic partition leaders are not available.")
    raise Refused("PREFERRED_LEADER_NOT_AVAILABLE", "The preferred leader was not available.")


def _result(index: int, refused: Refused) -> PartitionResult:
    return PartitionResult(
        partition_id=index, error_code=refused.error.code, error_message=refused.told or None
    )
