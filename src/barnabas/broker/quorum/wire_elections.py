"""Vote, BeginQuorumEpoch and EndQuorumEpoch: the raft core's values as Kafka's messages, and back."""

from __future__ import annotations

from typing import Any

from barnabas.broker.quorum.wire_parts import (
    INCONSISTENT_CLUSTER_ID,
    PARTITION,
    Answering,
    Asked,
    Asking,
    UnsupportedVersion,
    answered_partition,
    asked_voter,
    endpoints_of,
    is_other_cluster,
    known_by,
    leader_nodes,
    listeners_of,
    sole_partition,
    voter_key,
)
from barnabas.metadata.names import CLUSTER_METADATA
from barnabas.protocol.messages import begin_quorum_epoch as begins
from barnabas.protocol.messages import end_quorum_epoch as ends
from barnabas.protocol.messages import vote as votes
from barnabas.protocol.schema import Message
from barnabas.raft import messages as raft
from barnabas.raft.election import VoterKey

PRE_VOTE_FIRST = 2


def _not_here(response: Any, request: Any, cluster_id: str) -> Message | None:
    """The response to a request for another cluster or another partition, with only a top-level error."""
    error = raft.NONE
    if is_other_cluster(request.cluster_id, cluster_id):
        error = INCONSISTENT_CLUSTER_ID
    elif sole_partition(request.topics) is None:
        error = raft.INVALID_REQUEST
    refused: Message | None = response(error_code=error, topics=[]) if error else None
    return refused


# --- Vote


def vote_request(asked: raft.Vote, cluster_id: str, version: int) -> votes.VoteRequest:
    if asked.pre_vote and version < PRE_VOTE_FIRST:
        raise UnsupportedVersion(f"Vote of version {version} has no pre-vote")
    voter = asked.voter or raft.NO_KEY
    partition = votes.AskedPartition(
        partition_index=PARTITION,
        replica_epoch=asked.epoch,
        replica_id=asked.candidate.id,
        replica_directory_id=asked.candidate.directory_id.bytes,
        voter_directory_id=voter.directory_id.bytes,
        last_offset_epoch=asked.last_epoch,
        last_offset=asked.end_offset,
        pre_vote=asked.pre_vote,
    )
    topic = votes.AskedTopic(topic_name=CLUSTER_METADATA, partitions=[partition])
    return votes.VoteRequest(cluster_id=cluster_id, voter_id=voter.id, topics=[topic])


def vote(request: votes.VoteRequest, listener: str) -> raft.Vote:
    partition = request.topics[0].partitions[0]
    return raft.Vote(
        partition.replica_epoch,
        voter_key(partition.replica_id, partition.replica_directory_id),
        partition.last_offset_epoch,
        partition.last_offset,
        partition.pre_vote,
        asked_voter(request.voter_id, partition.voter_directory_id),
    )


def refuse_vote(
    request: votes.VoteRequest, cluster_id: str, known: raft.Known, asked: Asked
) -> Message | None:
    return _not_here(votes.VoteResponse, request, cluster_id)


def vote_response(answer: raft.VoteResponse, asked: Asked) -> votes.VoteResponse:
    partition = votes.PartitionData(
        partition_index=PARTITION,
        error_code=answer.error,
        leader_id=answer.known.leader_id,
        leader_epoch=answer.known.epoch,
        vote_granted=answer.granted,
    )
    return votes.VoteResponse(
        error_code=raft.NONE,
        topics=[votes.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
        node_endpoints=leader_nodes(answer.known, asked.listener),
    )


def vote_answer(response: votes.VoteResponse, request: raft.Vote, listener: str) -> raft.VoteResponse:
    partition = answered_partition(response)
    known = known_by(partition.leader_id, partition.leader_epoch, response.node_endpoints, listener)
    return raft.VoteResponse(partition.error_code, known, partition.vote_granted)


# --- BeginQuorumEpoch


def begin_request(
    told: raft.BeginQuorumEpoch, cluster_id: str, version: int
) -> begins.BeginQuorumEpochRequest:
    voter = told.voter or raft.NO_KEY
    partition = begins.ToldPartition(
        partition_index=PARTITION,
        voter_directory_id=voter.directory_id.bytes,
        leader_id=told.leader_id,
        leader_epoch=told.epoch,
    )
    return begins.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter.id,
        topics=[begins.ToldTopic(topic_name=CLUSTER_METADATA, partitions=[partition])],
        leader_endpoints=listeners_of(told.endpoints),
    )


def begin(request: begins.BeginQuorumEpochRequest, listener: str) -> raft.BeginQuorumEpoch:
    partition = request.topics[0].partitions[0]
    return raft.BeginQuorumEpoch(
        partition.leader_epoch,
        partition.leader_id,
        endpoints_of(request.leader_endpoints, listener),
        asked_voter(request.voter_id, partition.voter_directory_id),
    )


def refuse_begin(
    request: begins.BeginQuorumEpochRequest, cluster_id: str, known: raft.Known, asked: Asked
) -> Message | None:
    refused = _not_here(begins.BeginQuorumEpochResponse, request, cluster_id)
    return refused or _nobody_leads(begins, begins.BeginQuorumEpochResponse, request, known, asked)


def begin_response(answer: raft.EpochResponse, asked: Asked) -> Message:
    return _epoch_response(begins, begins.BeginQuorumEpochResponse, answer, asked)


# --- EndQuorumEpoch


def end_request(told: raft.EndQuorumEpoch, cluster_id: str, version: int) -> ends.EndQuorumEpochRequest:
    partition = ends.ToldPartition(
        partition_index=PARTITION,
        leader_id=told.leader_id,
        leader_epoch=told.epoch,
        preferred_successors=[key.id for key in told.successors],
        preferred_candidates=[
            ends.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id.bytes)
            for key in told.successors
        ],
    )
    return ends.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[ends.ToldTopic(topic_name=CLUSTER_METADATA, partitions=[partition])],
        leader_endpoints=listeners_of(told.endpoints),
    )


def end(request: ends.EndQuorumEpochRequest, listener: str) -> raft.EndQuorumEpoch:
    partition = request.topics[0].partitions[0]
    keys = [
        voter_key(each.candidate_id, each.candidate_directory_id) for each in partition.preferred_candidates
    ]
    return raft.EndQuorumEpoch(
        partition.leader_epoch,
        partition.leader_id,
        tuple(keys or (VoterKey(node_id) for node_id in partition.preferred_successors)),
        endpoints_of(request.leader_endpoints, listener),
    )


def refuse_end(
    request: ends.EndQuorumEpochRequest, cluster_id: str, known: raft.Known, asked: Asked
) -> Message | None:
    refused = _not_here(ends.EndQuorumEpochResponse, request, cluster_id)
    return refused or _nobody_leads(ends, ends.EndQuorumEpochResponse, request, known, asked)


def end_response(answer: raft.EpochResponse, asked: Asked) -> Message:
    return _epoch_response(ends, ends.EndQuorumEpochResponse, answer, asked)


# --- both


def _nobody_leads(
    module: Any, response: Any, request: Any, known: raft.Known, asked: Asked
) -> Message | None:
    """The response to a claim that no node leads, in the current epoch or a later one."""
    partition = request.topics[0].partitions[0]
    if partition.leader_id >= 0 or partition.leader_epoch < known.epoch:
        return None
    return _epoch_response(module, response, raft.EpochResponse(raft.INVALID_REQUEST, known), asked)


def _epoch_response(module: Any, response: Any, answer: raft.EpochResponse, asked: Asked) -> Message:
    partition = module.PartitionData(
        partition_index=PARTITION,
        error_code=answer.error,
        leader_id=answer.known.leader_id,
        leader_epoch=answer.known.epoch,
    )
    made: Message = response(
        error_code=raft.NONE,
        topics=[module.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
        node_endpoints=leader_nodes(answer.known, asked.listener),
    )
    return made


def epoch_answer(response: Any, request: Any, listener: str) -> raft.EpochResponse:
    partition = answered_partition(response)
    known = known_by(partition.leader_id, partition.leader_epoch, response.node_endpoints, listener)
    return raft.EpochResponse(partition.error_code, known)


ASKING: dict[type, Asking] = {
    raft.Vote: Asking(votes.VoteRequest, votes.VoteResponse, 0, vote_request, vote_answer),
    raft.BeginQuorumEpoch: Asking(
        begins.BeginQuorumEpochRequest, begins.BeginQuorumEpochResponse, 0, begin_request, epoch_answer
    ),
    raft.EndQuorumEpoch: Asking(
        ends.EndQuorumEpochRequest, ends.EndQuorumEpochResponse, 0, end_request, epoch_answer
    ),
}
ANSWERING: dict[type, Answering] = {
    votes.VoteRequest: Answering(vote, refuse_vote, vote_response),
    begins.BeginQuorumEpochRequest: Answering(begin, refuse_begin, begin_response),
    ends.EndQuorumEpochRequest: Answering(end, refuse_end, end_response),
}
