"""AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, and the ApiVersions request to a future voter.

The raft core's values as Kafka's messages, and back. These have only a top-level error.
"""

from __future__ import annotations

from barnabas import __version__
from barnabas.broker.quorum.wire_parts import (
    INCONSISTENT_CLUSTER_ID,
    NOTHING_KNOWN,
    Answering,
    Asked,
    Asking,
    UnsupportedVersion,
    endpoints_of,
    is_other_cluster,
    leader_endpoint,
    listeners_of,
    voter_key,
)
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.protocol.messages.update_raft_voter import (
    CurrentLeader,
    KRaftVersionFeature,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from barnabas.protocol.schema import Message
from barnabas.raft import messages as raft
from barnabas.raft.voters import Endpoint, VoterInfo
from barnabas.transport.connection import SOFTWARE_NAME

ACK_FIRST = 1
KRAFT_VERSION = "kraft.version"


def _other_cluster(asked: str | None, cluster_id: str) -> str:
    return f'The given id "{asked}" doesn\'t match the cluster id "{cluster_id}"'


# --- AddRaftVoter


def add_request(asked: raft.AddRaftVoter, cluster_id: str, version: int) -> AddRaftVoterRequest:
    if not asked.ack_when_committed and version < ACK_FIRST:
        raise UnsupportedVersion(f"AddRaftVoter of version {version} is answered when it is committed")
    return AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=asked.timeout_ms,
        voter_id=asked.voter.id,
        voter_directory_id=asked.voter.directory_id.bytes,
        listeners=listeners_of(asked.endpoints),
        ack_when_committed=asked.ack_when_committed,
    )


def add(request: AddRaftVoterRequest, listener: str) -> raft.AddRaftVoter:
    return raft.AddRaftVoter(
        voter_key(request.voter_id, request.voter_directory_id),
        endpoints_of(request.listeners, listener),
        request.timeout_ms,
        request.ack_when_committed,
    )


def refuse_add(
    request: AddRaftVoterRequest, cluster_id: str, known: raft.Known, asked: Asked
) -> Message | None:
    if not is_other_cluster(request.cluster_id, cluster_id):
        return None
    text = _other_cluster(request.cluster_id, cluster_id)
    return add_response(raft.VoterChangeResponse(INCONSISTENT_CLUSTER_ID, known, text), asked)


def add_response(answer: raft.VoterChangeResponse, asked: Asked) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(
        throttle_time_ms=0, error_code=answer.error, error_message=answer.message or None
    )


# --- RemoveRaftVoter


def remove_request(asked: raft.RemoveRaftVoter, cluster_id: str, version: int) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(
        cluster_id=cluster_id,
        voter_id=asked.voter.id,
        voter_directory_id=asked.voter.directory_id.bytes,
    )


def remove(request: RemoveRaftVoterRequest, listener: str) -> raft.RemoveRaftVoter:
    return raft.RemoveRaftVoter(voter_key(request.voter_id, request.voter_directory_id))


def refuse_remove(
    request: RemoveRaftVoterRequest, cluster_id: str, known: raft.Known, asked: Asked
) -> Message | None:
    if not is_other_cluster(request.cluster_id, cluster_id):
        return None
    text = _other_cluster(request.cluster_id, cluster_id)
    return remove_response(raft.VoterChangeResponse(INCONSISTENT_CLUSTER_ID, known, text), asked)


def remove_response(answer: raft.VoterChangeResponse, asked: Asked) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(
        throttle_time_ms=0, error_code=answer.error, error_message=answer.message or None
    )


def change_answer(
    response: AddRaftVoterResponse | RemoveRaftVoterResponse,
    request: raft.AddRaftVoter | raft.RemoveRaftVoter,
    listener: str,
) -> raft.VoterChangeResponse:
    return raft.VoterChangeResponse(response.error_code, NOTHING_KNOWN, response.error_message or "")


# --- UpdateRaftVoter


def update_request(asked: raft.UpdateRaftVoter, cluster_id: str, version: int) -> UpdateRaftVoterRequest:
    voter = asked.voter
    return UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=asked.epoch,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id.bytes,
        listeners=listeners_of(voter.endpoints),
        k_raft_version_feature=KRaftVersionFeature(
            min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
        ),
    )


def update(request: UpdateRaftVoterRequest, listener: str) -> raft.UpdateRaftVoter:
    feature = request.k_raft_version_feature
    voter = VoterInfo(
        voter_key(request.voter_id, request.voter_directory_id),
        endpoints_of(request.listeners, listener),
        feature.min_supported_version,
        feature.max_supported_version,
    )
    return raft.UpdateRaftVoter(request.current_leader_epoch, voter)


def refuse_update(
    request: UpdateRaftVoterRequest, cluster_id: str, known: raft.Known, asked: Asked
) -> Message | None:
    if not is_other_cluster(request.cluster_id, cluster_id):
        return None
    return update_response(raft.VoterChangeResponse(INCONSISTENT_CLUSTER_ID, known), asked)


def update_response(answer: raft.VoterChangeResponse, asked: Asked) -> UpdateRaftVoterResponse:
    known = answer.known
    endpoint = leader_endpoint(known, asked.listener)
    leader = CurrentLeader(
        leader_id=known.leader_id,
        leader_epoch=known.epoch,
        host="" if endpoint is None else endpoint.host,
        port=0 if endpoint is None else endpoint.port,
    )
    return UpdateRaftVoterResponse(throttle_time_ms=0, error_code=answer.error, current_leader=leader)


def update_answer(
    response: UpdateRaftVoterResponse, request: raft.UpdateRaftVoter, listener: str
) -> raft.VoterChangeResponse:
    leader = response.current_leader
    known = NOTHING_KNOWN
    if leader is not None:
        known = raft.Known(leader.leader_epoch)
        if leader.leader_id >= 0:
            endpoints = (Endpoint(listener, leader.host, leader.port),) if leader.host else ()
            known = raft.Known(leader.leader_epoch, leader.leader_id, endpoints)
    return raft.VoterChangeResponse(response.error_code, known)


# --- ApiVersions


def api_versions_request(asked: raft.ApiVersions, cluster_id: str, version: int) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)


def api_versions_answer(
    response: ApiVersionsResponse, request: raft.ApiVersions, listener: str
) -> raft.ApiVersionsResponse:
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION:
            return raft.ApiVersionsResponse(response.error_code, feature.min_version, feature.max_version)
    return raft.ApiVersionsResponse(response.error_code)


ASKING: dict[type, Asking] = {
    raft.AddRaftVoter: Asking(AddRaftVoterRequest, AddRaftVoterResponse, 0, add_request, change_answer),
    raft.RemoveRaftVoter: Asking(
        RemoveRaftVoterRequest, RemoveRaftVoterResponse, 0, remove_request, change_answer
    ),
    raft.UpdateRaftVoter: Asking(
        UpdateRaftVoterRequest, UpdateRaftVoterResponse, 0, update_request, update_answer
    ),
    raft.ApiVersions: Asking(
        ApiVersionsRequest, ApiVersionsResponse, 0, api_versions_request, api_versions_answer
    ),
}
ANSWERING: dict[type, Answering] = {
    AddRaftVoterRequest: Answering(add, refuse_add, add_response),
    RemoveRaftVoterRequest: Answering(remove, refuse_remove, remove_response),
    UpdateRaftVoterRequest: Answering(update, refuse_update, update_response),
}
